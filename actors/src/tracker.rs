//! Tracker: what is known of agents over time. Its loss costs nothing but a rebuild from the next
//! listing.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::mailbox::Gauge;
use crate::model::AgentName;
use crate::ports::Listing;

/// Last activity of each live agent in a listing.
pub(crate) type Activities = Vec<(AgentName, Option<DateTime<Utc>>)>;

/// What a [`Tracker`] can be told.
#[derive(Debug)]
pub(crate) enum TrackerMsg {
    /// What the last listing said. Replaces what was known before.
    Facts(Activities),
    /// Panic, for fault drills.
    Crash,
}

/// Everything a [`Tracker`] is born with.
#[derive(Debug)]
pub(crate) struct TrackerArgs {
    pub(crate) gauge: Arc<Gauge>,
}

/// State of a [`Tracker`].
#[derive(Debug)]
pub(crate) struct TrackerState {
    gauge: Arc<Gauge>,
    last_activity: HashMap<AgentName, DateTime<Utc>>,
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
        _: ActorRef<TrackerMsg>,
        args: TrackerArgs,
    ) -> Result<TrackerState, ActorProcessingErr> {
        Ok(TrackerState {
            gauge: args.gauge,
            last_activity: HashMap::new(),
        })
    }

    async fn handle(
        &self,
        _: ActorRef<TrackerMsg>,
        msg: TrackerMsg,
        st: &mut TrackerState,
    ) -> Result<(), ActorProcessingErr> {
        let kind = match msg {
            TrackerMsg::Facts(_) => "Facts",
            TrackerMsg::Crash => "Crash",
        };
        let _busy = st.gauge.enter(kind);
        match msg {
            TrackerMsg::Facts(activities) => st.observe(activities),
            #[allow(clippy::panic)] // the whole point
            TrackerMsg::Crash => panic!("fault drill: tracker told to crash"),
        }
        Ok(())
    }
}

impl TrackerState {
    /// Activity never moves backwards, whatever a provider's clock does.
    fn observe(&mut self, activities: Activities) {
        let mut before = std::mem::take(&mut self.last_activity);
        for (agent, at) in activities {
            if let Some(latest) = at.max(before.remove(&agent)) {
                self.last_activity.insert(agent, latest);
            }
        }
    }
}

/// What the Tracker needs of a listing.
pub(crate) fn activities(listing: &Listing) -> Activities {
    listing
        .owned
        .iter()
        .filter(|facts| facts.live)
        .map(|facts| (facts.agent.clone(), facts.last_activity))
        .collect()
}
