use std::collections::BTreeMap;

use gascity_actors::model::{AgentName, Launch};

use gascity_actors::ports::{Caps, Key, Liveness, Note, PortFuture, SessionEvents};

use super::*;
use crate::sessions::delegate::delegate;
use crate::sessions::{Fail, Fake};

/// A router over two providers in memory; `odd` is the second one.
fn router(others: &[&str]) -> (Router, Arc<Fake>, Arc<Fake>) {
    let (base, odd) = (Arc::new(Fake::new()), Arc::new(Odd::default()));
    let fake = odd.0.clone();
    let build = Arc::new(move |word: &str| match word {
        "odd" => Ok(odd.clone() as Arc<dyn Sessions>),
        "fail" => Ok(Arc::new(Fail::default()) as Arc<dyn Sessions>),
        other => Err(format!("no {other}")),
    });
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    let router = Router::new(base.clone(), "why".into(), build, &others).unwrap();
    (router, base, fake)
}

/// Sessions in memory under another word, and without a log.
#[derive(Debug, Default)]
struct Odd(Arc<Fake>);

impl Sessions for Odd {
    fn provider(&self) -> &'static str {
        "odd"
    }
    fn caps(&self) -> Caps {
        Caps::default()
    }
    fn start(&self, t: RunToken, s: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        self.0.start(t, s)
    }
    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        self.0.snapshot()
    }
    delegate!(port self name => self.0;
        stop interrupt liveness process_alive clear_scrollback peek set_note);

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribe()
    }
}

fn spec(agent: &str, provider: Option<&str>) -> Arc<StartSpec> {
    Arc::new(StartSpec {
        session: SessionName::new(agent).unwrap(),
        agent: AgentName::new(agent).unwrap(),
        template: AgentName::new(agent).unwrap(),
        generation: 1,
        setup_timeout: std::time::Duration::from_secs(10),
        process_names: Vec::new(),
        live: Vec::new(),
        launch: Arc::new(Launch {
            session: provider.map(str::to_owned),
            ..Launch::default()
        }),
        notes: BTreeMap::new(),
    })
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.owned.iter().map(|f| f.session.as_str()).collect()
}

async fn start(router: &Router, agent: &str, provider: Option<&str>) -> RunToken {
    let token = RunToken::new(format!("run-of-{agent}")).unwrap();
    let started = Sessions::start(router, token.clone(), spec(agent, provider)).await;
    started.unwrap();
    token
}

#[tokio::test]
async fn an_agent_runs_where_it_says_and_all_are_one_listing() {
    let (router, base, odd) = router(&[]);
    let mut events = router.subscribe();
    start(&router, "a", None).await;
    let b = start(&router, "b", Some("odd")).await;
    start(&router, "c", None).await;
    assert_eq!(names(&base.snapshot().await.unwrap()), ["a", "c"]);
    assert_eq!(names(&odd.snapshot().await.unwrap()), ["b"]);
    assert_eq!(
        names(&Sessions::snapshot(&router).await.unwrap()),
        ["a", "b", "c"]
    );
    let name = |text: &str| SessionName::new(text).unwrap();
    assert!(router.caps_of(&name("a")).log && !router.caps_of(&name("b")).log);
    let look = router.liveness(name("b"), b.clone()).await.unwrap();
    assert!(matches!(look, Liveness::Live { .. }));
    // Its exit arrives, although it was built after somebody listened.
    router
        .stop(name("b"), Fence::Token(b.clone()))
        .await
        .unwrap();
    assert_eq!(events.recv().await.unwrap().token, b);
    assert_eq!(names(&odd.snapshot().await.unwrap()), [""; 0]);
    assert_eq!((router.provider(), router.why().as_str()), ("fake", "why"));
}

#[tokio::test]
async fn what_an_earlier_supervisor_started_elsewhere_is_found() {
    let (router, _, odd) = router(&["odd"]);
    let token = RunToken::new("old").unwrap();
    odd.start(token.clone(), spec("b", None)).await.unwrap();
    let name = SessionName::new("b").unwrap();
    let look = router.liveness(name.clone(), token.clone()).await.unwrap();
    assert!(matches!(look, Liveness::Live { .. }));
    router.stop(name, Fence::Token(token)).await.unwrap();
    assert_eq!(names(&odd.snapshot().await.unwrap()), [""; 0]);
}

#[tokio::test]
async fn an_agent_that_moves_is_never_in_two_places() {
    let (router, base, odd) = router(&["odd"]);
    let token = start(&router, "a", Some("odd")).await;
    let again = Sessions::start(&router, RunToken::new("x").unwrap(), spec("a", None)).await;
    let failure = StartFailure::from(again.unwrap_err());
    assert!(
        failure.detail.contains("already running on odd"),
        "{failure}"
    );
    odd.memory()
        .exit("a", gascity_actors::model::ExitStatus::Code(1));
    start(&router, "a", None).await;
    assert_eq!(names(&odd.snapshot().await.unwrap()), [""; 0]);
    assert_eq!(names(&base.snapshot().await.unwrap()), ["a"]);
    let name = SessionName::new("a").unwrap();
    assert_eq!(
        router
            .liveness(name, token.clone())
            .await
            .map(|l| l != Liveness::Absent),
        Ok(true)
    );
}

#[tokio::test]
async fn a_provider_that_fails_leaves_the_others_alone() {
    let (router, _, _) = router(&["fail"]);
    start(&router, "a", None).await;
    let listing = Sessions::snapshot(&router).await.unwrap();
    assert_eq!(names(&listing), ["a"]);
    assert!(!listing.is_complete());
    assert_eq!(listing.errors, ["fail: session unavailable"]);
    let b = Sessions::start(
        &router,
        RunToken::new("x").unwrap(),
        spec("b", Some("fail")),
    )
    .await;
    let failure = StartFailure::from(b.unwrap_err());
    assert_eq!(failure.class, FailureClass::Provider);
    let name = SessionName::new("b").unwrap();
    let look = router.liveness(name, RunToken::new("x").unwrap()).await;
    assert!(look.is_err(), "what cannot be seen is not dead: {look:?}");
    let none = Sessions::start(
        &router,
        RunToken::new("y").unwrap(),
        spec("c", Some("none")),
    );
    let failure = StartFailure::from(none.await.unwrap_err());
    assert_eq!(failure.detail, "no none");
}

#[tokio::test]
async fn a_city_whose_own_provider_fails_still_sees_the_others() {
    let (router, base, _) = router(&["odd"]);
    let down = SessionError::Backend("down".into());
    base.memory().fail_listing(Some(down.clone()));
    // Before anything was seen there, nobody may conclude that nothing runs there.
    assert_eq!(Sessions::snapshot(&router).await, Err(down.clone()));
    base.memory().fail_listing(None);
    start(&router, "a", None).await;
    start(&router, "b", Some("odd")).await;
    assert_eq!(
        names(&Sessions::snapshot(&router).await.unwrap()),
        ["a", "b"]
    );
    base.memory().fail_listing(Some(down));
    let listing = Sessions::snapshot(&router).await.unwrap();
    assert_eq!(names(&listing), ["b"]);
    assert_eq!(listing.errors, ["fake: down"]);
}

/// Row 46: an op that hangs is given up at its limit, and only for that session.
#[tokio::test(start_paused = true)]
async fn what_hangs_is_given_up_at_its_limit_and_other_sessions_go_on() {
    macro_rules! hangs {
        ($($op:ident($($argument:expr),*);)*) => {$({
            let (router, fake, _) = router(&[]);
            start(&router, "a", None).await;
            start(&router, "b", None).await;
            let op = stringify!($op);
            fake.memory().hang(op, "a");
            let name = |text: &str| SessionName::new(text).unwrap();
            let began = tokio::time::Instant::now();
            let healthy = router.$op(name("b") $(, $argument)*).await;
            assert!(healthy.is_ok(), "{op}: {healthy:?}");
            assert_eq!(began.elapsed(), std::time::Duration::ZERO, "{op}");
            let (hung, healthy) = tokio::join!(
                router.$op(name("a") $(, $argument)*),
                router.$op(name("b") $(, $argument)*),
            );
            assert_eq!(hung, Err(SessionError::Timeout), "{op}");
            assert!(healthy.is_ok() || op == "stop", "{op}: {healthy:?}");
            let limit = fake.limits().$op;
            let took = began.elapsed();
            // Timers have steps of a millisecond.
            let over = took.saturating_sub(limit);
            assert!(took >= limit && over.as_millis() <= 1, "{op} took {took:?}");
        })*};
    }
    let token = || RunToken::new("run-of-b").unwrap();
    let from = || std::path::PathBuf::from("/nonexistent");
    hangs! {
        interrupt(Fence::Any);
        liveness(token());
        process_alive(vec![]);
        clear_scrollback();
        peek(5);
        set_note(Fence::Any, Note::Drain, None);
        nudge(Fence::Any, "hello".into());
        send_keys(Fence::Any, vec![Key::ENTER]);
        copy_to(from(), "x".into());
        stop(Fence::Any);
    }
    let (router, fake, _) = router(&["odd"]);
    start(&router, "b", Some("odd")).await;
    Sessions::snapshot(&router).await.unwrap();
    fake.memory().hang("snapshot", "");
    let began = tokio::time::Instant::now();
    let listing = Sessions::snapshot(&router).await.unwrap();
    let over = began.elapsed().saturating_sub(fake.limits().snapshot);
    assert!(over.as_millis() <= 1, "{:?}", began.elapsed());
    assert_eq!(names(&listing), ["b"]);
    assert_eq!(listing.errors, ["fake: timed out"]);
}
