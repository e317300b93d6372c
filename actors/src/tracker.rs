//! Tracker: what must be watched over time. Wakes the city when an agent may have become idle, and
//! keeps the crash history on disk. Its loss costs nothing but a rebuild from the next listing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::{Instant, timeout};

use crate::city::CityMsg;
use crate::mailbox::{Addr, Gauge, Timer};
use crate::model::AgentName;
use crate::policy::Trigger;
use crate::ports::CityPorts;

const NOTES_LIMIT: Duration = Duration::from_secs(10);

/// An agent that is stopped when it is idle for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) agent: AgentName,
    pub(crate) last_activity: Instant,
    pub(crate) limit: Duration,
}

impl Watched {
    /// Idle means strictly longer than the limit.
    fn deadline(&self) -> Instant {
        self.last_activity + self.limit + Duration::from_millis(1)
    }
}

/// What a [`Tracker`] can be told.
#[derive(Debug)]
pub(crate) enum TrackerMsg {
    /// Whom to watch, with their last activity. Replaces what was known before.
    Watch(Vec<Watched>),
    /// One more to watch: a run that began between listings.
    Add(Watched),
    /// The earliest idle deadline passed.
    Due,
    /// Read the crash history.
    LoadHistory,
    /// Keep this crash history.
    SaveHistory(String),
    /// It was written, or could not be.
    Saved,
    /// Panic, for fault drills.
    Crash,
    /// Handle nothing else for so long, for fault drills.
    Hold(Duration),
}

impl TrackerMsg {
    fn kind(&self) -> &'static str {
        match self {
            Self::Watch(_) => "Watch",
            Self::Add(_) => "Add",
            Self::Due => "Due",
            Self::LoadHistory => "LoadHistory",
            Self::SaveHistory(_) => "SaveHistory",
            Self::Saved => "Saved",
            Self::Crash => "Crash",
            Self::Hold(_) => "Hold",
        }
    }
}

/// Everything a [`Tracker`] is born with.
#[derive(Debug)]
pub(crate) struct TrackerArgs {
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) city: Addr<CityMsg>,
    pub(crate) ports: Arc<CityPorts>,
}

/// State of a [`Tracker`].
#[derive(Debug)]
pub(crate) struct TrackerState {
    args: TrackerArgs,
    me: Addr<TrackerMsg>,
    deadlines: HashMap<AgentName, Instant>,
    alarm: Option<(Instant, Timer)>,
    saving: bool,
    /// The newest history that is not written yet.
    unsaved: Option<String>,
}

/// The actor; all state is in [`TrackerState`].
#[derive(Debug)]
pub(crate) struct Tracker;

impl Actor for Tracker {
    type Msg = TrackerMsg;
    type State = TrackerState;
    type Arguments = TrackerArgs;

    async fn pre_start(
        &self,
        me: ActorRef<TrackerMsg>,
        args: TrackerArgs,
    ) -> Result<TrackerState, ActorProcessingErr> {
        Ok(TrackerState {
            me: Addr::new(me, args.gauge.clone()),
            args,
            deadlines: HashMap::new(),
            alarm: None,
            saving: false,
            unsaved: None,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<TrackerMsg>,
        msg: TrackerMsg,
        st: &mut TrackerState,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = st.args.gauge.enter(msg.kind());
        match msg {
            TrackerMsg::Watch(watched) => st.watch(&watched),
            TrackerMsg::Add(watched) => {
                st.deadlines
                    .insert(watched.agent.clone(), watched.deadline());
                st.arm();
            }
            TrackerMsg::Due => st.on_due(),
            TrackerMsg::LoadHistory => st.load(),
            TrackerMsg::SaveHistory(text) => {
                st.unsaved = Some(text);
                st.save();
            }
            TrackerMsg::Saved => {
                st.saving = false;
                st.save();
            }
            #[allow(clippy::panic)] // the whole point
            TrackerMsg::Crash => panic!("fault drill: tracker told to crash"),
            TrackerMsg::Hold(span) => tokio::time::sleep(span).await,
        }
        Ok(())
    }
}

impl TrackerState {
    fn watch(&mut self, watched: &[Watched]) {
        let now = self.args.ports.clock.now();
        // What is overdue was looked at by the tick that sent this, and left alone for a reason:
        // asking again at once would only ask for ever.
        self.deadlines = watched
            .iter()
            .map(|w| (w.agent.clone(), w.deadline()))
            .filter(|(_, at)| *at > now)
            .collect();
        self.arm();
    }

    fn arm(&mut self) {
        let earliest = self.deadlines.values().min().copied();
        if self.alarm.as_ref().map(|(at, _)| *at) == earliest {
            return;
        }
        let now = self.args.ports.clock.now();
        self.alarm = earliest.map(|at| {
            let delay = at.saturating_duration_since(now);
            (at, self.me.send_after(delay, TrackerMsg::Due))
        });
    }

    /// Somebody may be idle: a fresh listing tells. Until then the deadline is not asked again.
    fn on_due(&mut self) {
        let now = self.args.ports.clock.now();
        self.deadlines.retain(|_, at| *at > now);
        self.alarm = None;
        self.arm();
        self.args.city.send(CityMsg::Tick(Trigger::Poke));
    }

    fn load(&self) {
        let (city, ports) = (self.args.city.clone(), self.args.ports.clone());
        tokio::spawn(async move {
            let loaded = timeout(NOTES_LIMIT, ports.notes.load_crash_history()).await;
            let text = match loaded {
                Ok(Ok(text)) => text,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "crash history cannot be read");
                    None
                }
                Err(_) => None,
            };
            city.send(CityMsg::History(text));
        });
    }

    /// One write at a time; the newest history wins.
    fn save(&mut self) {
        let Some(text) = self.unsaved.take_if(|_| !self.saving) else {
            return;
        };
        self.saving = true;
        let (me, ports) = (self.me.clone(), self.args.ports.clone());
        tokio::spawn(async move {
            let saved = timeout(NOTES_LIMIT, ports.notes.save_crash_history(text)).await;
            if let Ok(Err(error)) = saved {
                tracing::warn!(%error, "crash history cannot be written");
            }
            me.send(TrackerMsg::Saved);
        });
    }
}
