//! What can happen: drawn at random, then done.

use std::time::Duration;

use gascity_actors::memory::{Answer, Behaviour};
use gascity_actors::model::{AgentName, ExitStatus, FailureClass, OnDrift, StartFailure};
use gascity_actors::ports::{LoadError, Note, SessionError, ShellError};
use gascity_actors::{AgentCommand, StopMode};
use tokio::time::sleep;

use crate::checks;
use crate::rng::Rng;
use crate::world::{SimCity, World, dependencies, healthy};

/// One thing that happens. Numbers are those of cities.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// An agent ends by itself.
    Exit(usize, AgentName, ExitStatus),
    /// It ends and nobody is told.
    ExitUnnoticed(usize, AgentName, ExitStatus),
    /// From its next start on it behaves like this.
    Script(usize, AgentName, Box<Behaviour>),
    /// Its program is gone, its session is not.
    Zombie(usize, AgentName),
    Attach(usize, AgentName, bool),
    Touch(usize, AgentName),
    /// The agent leaves a note in its session.
    Note(usize, AgentName, Note),
    ListingFails(usize, bool),
    ListingTakes(usize, Duration),
    StopsFail(usize, bool),
    /// Stops and looks at single sessions take this long.
    Lag(usize, Duration),
    BackendLost(usize),
    Check(usize, String, Answer),
    Edit(usize, Edit),
    Command(usize, AgentName, AgentCommand),
    Poke(usize),
    Reload(usize),
    /// An actor panics.
    Crash(String),
    /// An actor is killed, in the midst of what it does.
    Kill(String),
    /// The supervisor process dies.
    Die,
    Stop(StopMode),
    Found,
    /// The supervisor process dies and is started again at once.
    Refound,
    Pass(Duration),
}

/// A change of the config file.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Env(usize),
    Add,
    Remove(usize),
    Suspend(usize),
    SuspendCity,
    PoolMax(usize, u32),
    DependsOn(usize),
    Limit(usize, u32),
    Drift(usize, OnDrift),
    Idle(usize, Option<Duration>),
    MaxAgents(Option<usize>),
    Broken,
    Rename,
    /// The same bytes again.
    Nothing,
}

const CRASH: ExitStatus = ExitStatus::Code(1);

/// Draws the next step.
pub(crate) fn draw(rng: &mut Rng, world: &World) -> Step {
    if world.machine.is_none() && rng.chance(40) {
        return Step::Found;
    }
    let at = rng.below(world.cities.len());
    let city = &world.cities[at];
    let agent = any_agent(rng, city);
    match rng.below(100) {
        0..22 => Step::Pass(span(rng)),
        22..32 => Step::Exit(at, agent, status(rng)),
        32..35 => Step::ExitUnnoticed(at, agent, status(rng)),
        35..45 => Step::Script(at, agent, Box::new(behaviour(rng))),
        45..46 => Step::Zombie(at, agent),
        46..47 => Step::Attach(at, agent, rng.chance(50)),
        47..48 => Step::Touch(at, agent),
        48..50 => Step::Note(
            at,
            agent,
            *rng.pick(&[Note::RestartRequested, Note::DrainAck]),
        ),
        50..53 => Step::ListingFails(at, rng.chance(50)),
        53..56 => Step::ListingTakes(at, rng.seconds(&[0, 0, 3, 60])),
        56..58 => Step::StopsFail(at, rng.chance(50)),
        58..60 => Step::Lag(at, rng.millis(&[0, 0, 300, 3000, 15_000])),
        60..61 => Step::BackendLost(at),
        61..66 => check(rng, at, city),
        66..77 => Step::Edit(at, edit(rng, city)),
        77..87 => Step::Command(at, agent, command(rng)),
        87..89 => Step::Poke(at),
        89..90 => Step::Reload(at),
        90..97 => drill(rng, &city.plan.name, &agent),
        97 => Step::Die,
        98 => Step::Refound,
        _ => Step::Stop(*rng.pick(&[StopMode::Graceful, StopMode::Force, StopMode::Detach])),
    }
}

/// The end of an actor: mostly of a Worker.
fn drill(rng: &mut Rng, city: &str, agent: &AgentName) -> Step {
    let path = match rng.below(7) {
        0..4 => format!("{city}/{agent}"),
        4 => format!("{city}/tracker"),
        _ => city.to_owned(),
    };
    if rng.chance(50) {
        Step::Crash(path)
    } else {
        Step::Kill(path)
    }
}

fn any_agent(rng: &mut Rng, city: &SimCity) -> AgentName {
    let plan = &city.plan;
    let all: Vec<AgentName> = (0..plan.agents.len())
        .flat_map(|index| plan.instances(index))
        .collect();
    if all.is_empty() {
        return AgentName::new("nobody").expect("a name");
    }
    rng.pick(&all).clone()
}

fn span(rng: &mut Rng) -> Duration {
    match rng.below(10) {
        0..3 => rng.millis(&[1, 10, 499, 500, 999, 1000]),
        3..9 => rng.seconds(&[1, 2, 5, 10, 31, 65]),
        _ => rng.seconds(&[125, 601, 3600]),
    }
}

fn status(rng: &mut Rng) -> ExitStatus {
    *rng.pick(&[CRASH, CRASH, ExitStatus::Code(0), ExitStatus::Signal(9)])
}

fn behaviour(rng: &mut Rng) -> Behaviour {
    let failure = |class| Some(StartFailure::new("spawn", class, "scripted"));
    let mut behaviour = healthy();
    match rng.below(8) {
        0..3 => behaviour.exits = Some((rng.millis(&[0, 0, 10, 700, 3000]), status(rng))),
        3 => behaviour.start_fails = failure(FailureClass::Agent),
        4 => behaviour.start_fails = failure(FailureClass::Provider),
        5 => behaviour.start_after = rng.millis(&[100, 2000, 3_600_000]),
        6 => behaviour.ignores_interrupt = true,
        _ => {}
    }
    if rng.chance(25) {
        behaviour.start_after = rng.millis(&[50, 1000, 4000]);
    }
    behaviour
}

fn check(rng: &mut Rng, at: usize, city: &SimCity) -> Step {
    let pools: Vec<_> = city
        .plan
        .agents
        .iter()
        .filter(|a| a.pool.is_some())
        .collect();
    if pools.is_empty() {
        return Step::Pass(span(rng));
    }
    let pool = *rng.pick(&pools);
    let failed = ShellError::Failed {
        status: "exit 1".into(),
        stderr: String::new(),
    };
    let (after, result) = match rng.below(8) {
        0 => (Duration::from_secs(3600), Ok("1".to_owned())),
        1 => (Duration::ZERO, Err(failed)),
        2 => (Duration::ZERO, Ok("many".to_owned())),
        3 => (Duration::from_secs(3), Ok(rng.below(5).to_string())),
        _ => (Duration::ZERO, Ok(rng.below(5).to_string())),
    };
    Step::Check(at, pool.check(), Answer { after, result })
}

fn edit(rng: &mut Rng, city: &SimCity) -> Edit {
    let count = city.plan.agents.len();
    if count == 0 {
        return Edit::Add;
    }
    let index = rng.below(count);
    match rng.below(20) {
        0..5 => Edit::Env(index),
        5..7 => Edit::Add,
        7..9 => Edit::Remove(index),
        9..12 => Edit::Suspend(index),
        12 => Edit::SuspendCity,
        13 => Edit::PoolMax(index, rng.below(4) as u32),
        14 => Edit::DependsOn(index),
        15 => Edit::Limit(index, rng.below(4) as u32),
        16 => settings(rng, index),
        17 => Edit::Broken,
        18 => Edit::Rename,
        _ => Edit::Nothing,
    }
}

/// Keys that concern supervision alone.
fn settings(rng: &mut Rng, index: usize) -> Edit {
    match rng.below(6) {
        0 => Edit::Idle(index, None),
        1 => Edit::Idle(index, Some(Duration::from_secs(20))),
        2 => Edit::Drift(index, OnDrift::Restart),
        3 => Edit::Drift(index, OnDrift::Drain),
        4 => Edit::MaxAgents(None),
        _ => Edit::MaxAgents(Some(3)),
    }
}

fn command(rng: &mut Rng) -> AgentCommand {
    let timeout = rng.chance(60).then(|| rng.seconds(&[0, 5, 60]));
    *rng.pick(&[
        AgentCommand::Restart,
        AgentCommand::Restart,
        AgentCommand::Kill,
        AgentCommand::Unquarantine,
        AgentCommand::Drain { timeout },
        AgentCommand::Undrain,
        AgentCommand::DrainAck,
        AgentCommand::RequestRestart,
    ])
}

/// Lets everything happen that needs no time: the paused clock moves on only when nobody has
/// anything left to do.
pub(crate) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// Makes it happen.
pub(crate) async fn perform(world: &mut World, rng: &mut Rng, step: &Step) -> Result<(), String> {
    match step {
        Step::Exit(at, agent, status) => {
            let _ = world.cities[*at]
                .ports
                .sessions
                .exit(agent.as_str(), *status);
        }
        Step::ExitUnnoticed(at, agent, status) => {
            let sessions = &world.cities[*at].ports.sessions;
            sessions.exit_unnoticed(agent.as_str(), *status);
        }
        Step::Script(at, agent, how) => {
            let sessions = &world.cities[*at].ports.sessions;
            sessions.script(agent.as_str(), (**how).clone());
        }
        Step::Zombie(at, agent) => {
            world.cities[*at]
                .ports
                .sessions
                .set_processes(agent.as_str(), &[]);
        }
        Step::Attach(at, agent, attached) => {
            world.cities[*at]
                .ports
                .sessions
                .set_attached(agent.as_str(), *attached);
        }
        Step::Touch(at, agent) => world.cities[*at].ports.sessions.touch(agent.as_str()),
        Step::Note(at, agent, note) => {
            let sessions = &world.cities[*at].ports.sessions;
            sessions.note(agent.as_str(), *note, Some("1"));
        }
        Step::ListingFails(at, fails) => {
            let error = fails.then(|| SessionError::Backend("no listing".into()));
            world.cities[*at].fault("listing", *fails);
            world.cities[*at].ports.sessions.fail_listing(error);
        }
        Step::ListingTakes(at, takes) => {
            world.cities[*at].fault("slow listing", !takes.is_zero());
            world.cities[*at].ports.sessions.delay_listing(*takes);
        }
        Step::StopsFail(at, fail) => {
            let error = fail.then(|| SessionError::Backend("no stops".into()));
            world.cities[*at].fault("stops", *fail);
            world.cities[*at].ports.sessions.fail_stops(error);
        }
        Step::Lag(at, lag) => {
            world.cities[*at].fault("lag", !lag.is_zero());
            world.cities[*at].observer.set_lag(*lag);
        }
        Step::BackendLost(at) => world.cities[*at]
            .ports
            .sessions
            .lose_backend(Duration::ZERO, false),
        Step::Check(at, line, answer) => {
            world.cities[*at].ports.shell.script(line, answer.clone());
        }
        Step::Edit(at, edit) => apply(world, rng, *at, edit).await,
        Step::Command(at, agent, command) => tell(world, *at, agent, *command).await?,
        Step::Poke(at) => {
            if let Some(city) = world.city(*at) {
                let _ = city.poke().await; // the city may be down
            }
        }
        Step::Reload(at) => {
            if let Some(city) = world.city(*at) {
                let _ = city.reload().await;
            }
        }
        Step::Crash(path) => {
            if let Some(door) = world.door() {
                door.crash(path).await;
            }
        }
        Step::Kill(path) => {
            if let Some(door) = world.door() {
                door.kill(path).await;
            }
        }
        Step::Die => die(world).await?,
        Step::Stop(mode) => stop(world, *mode).await?,
        Step::Found => {
            if world.machine.is_none() {
                world.found().await;
            }
        }
        Step::Refound => refound(world).await?,
        Step::Pass(time) => sleep(*time).await,
    }
    settle().await;
    Ok(())
}

/// Every actor vanishes without a word, as when the process is killed.
async fn die(world: &mut World) -> Result<(), String> {
    let Some(mut machine) = world.machine.take() else {
        return Ok(());
    };
    machine.door().crash("machine").await;
    if machine.ended().await {
        return Err("a crash of the root counts as a clean end".into());
    }
    for city in &world.cities {
        city.observer.die();
    }
    Ok(())
}

/// I25: whoever lives well under one supervisor lives on untouched under the next.
async fn refound(world: &mut World) -> Result<(), String> {
    let steady = checks::steady(world).await;
    for city in &world.cities {
        city.ports.sessions.clear_calls();
    }
    die(world).await?;
    world.found().await;
    settle().await;
    for (city, steady) in world.cities.iter().zip(steady) {
        checks::untouched(city, &steady)?;
    }
    Ok(())
}

async fn stop(world: &mut World, mode: StopMode) -> Result<(), String> {
    let Some(mut machine) = world.machine.take() else {
        return Ok(());
    };
    for city in &world.cities {
        let graceful = mode == StopMode::Graceful && !city.plan.shutdown_timeout.is_zero();
        city.observer.book().graceful = graceful;
    }
    let stopped = machine.door().stop(mode).await;
    stopped.map_err(|error| format!("a stop was not answered: {error}"))?;
    if !machine.ended().await {
        return Err("a stop counts as a failure of the root".into());
    }
    Ok(())
}

async fn tell(
    world: &World,
    at: usize,
    agent: &AgentName,
    command: AgentCommand,
) -> Result<(), String> {
    let Some(city) = world.city(at) else {
        return Ok(());
    };
    // Known before the answer: the start that follows may come first.
    let forgiven = (command == AgentCommand::Unquarantine)
        .then(|| world.cities[at].observer.book().forgive(agent));
    let answer = city.command(agent, command).await;
    if let (Some(ledger), Err(_) | Ok(Err(_))) = (forgiven, &answer) {
        world.cities[at].observer.book().blame(agent, ledger);
    }
    Ok(())
}

async fn apply(world: &mut World, rng: &mut Rng, at: usize, edit: &Edit) {
    let city = &mut world.cities[at];
    let plan = &mut city.plan;
    match edit {
        Edit::Env(index) => plan.agents[*index].edits += 1,
        Edit::Add => {
            plan.add(rng);
            city.behave(city.plan.agents.len() - 1);
        }
        Edit::Remove(index) => plan.remove(*index),
        Edit::Suspend(index) => plan.agents[*index].suspended ^= true,
        Edit::SuspendCity => plan.suspended ^= true,
        Edit::PoolMax(index, most) => {
            if let Some((min, max)) = &mut plan.agents[*index].pool {
                *max = (*min).max(*most);
            }
            city.behave(*index);
        }
        Edit::DependsOn(index) => {
            let before = plan.agents[..*index].to_vec();
            plan.agents[*index].depends_on = dependencies(rng, &before);
        }
        Edit::Limit(index, max) => plan.agents[*index].max_restarts = *max,
        Edit::Drift(index, on_drift) => plan.agents[*index].on_drift = *on_drift,
        Edit::Idle(index, limit) => plan.agents[*index].idle_timeout = *limit,
        Edit::MaxAgents(max) => plan.max_agents = *max,
        Edit::Broken => {
            city.broken = true;
            let error = LoadError {
                summary: "broken".into(),
                diagnostics: Vec::new(),
            };
            return city.ports.desired.set(Err(error));
        }
        Edit::Rename => {
            // Refused whole; then the old name comes back.
            let mut spec = city.plan.spec();
            spec.name = gascity_actors::model::CityName::new("other").expect("a name");
            spec.revision = "other".into();
            spec.agents.clear();
            city.ports.desired.set(Ok(spec));
            settle().await;
        }
        Edit::Nothing => {}
    }
    world.cities[at].save();
}
