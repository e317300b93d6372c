//! Waiting for a city, told step by step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::MachineRef;
use crate::model::{AgentState, CityInfo, CityStatus, CityView, MachineView};

/// How often a waiting client is told which agents are still starting, at most.
const PROGRESS_STEP: Duration = Duration::from_millis(100);

/// A client that waits for a city to come up or go away.
pub(super) struct Waiting {
    pub(super) door: MachineRef,
    pub(super) path: PathBuf,
    pub(super) want_stopped: bool,
    pub(super) items: mpsc::Sender<Value>,
}

impl Waiting {
    pub(super) async fn run(self, deadline: Instant) {
        let mut views = self.door.views();
        let mut told = Value::Null;
        let began = Instant::now();
        loop {
            let view: Arc<MachineView> = views.borrow_and_update().clone();
            let city = view.cities.iter().find(|city| city.path == self.path);
            let mut item = self.item(city).await;
            if city.is_some_and(|city| city.status == CityStatus::Stopping) {
                // Whole seconds, so that a countdown has something to count.
                item["waited_sec"] = json!(began.elapsed().as_secs());
            }
            if item != told {
                told = item;
                if self.items.send(told.clone()).await.is_err() {
                    return; // the client is gone
                }
            }
            if self.is_over(city) || Instant::now() >= deadline {
                return;
            }
            // Agents come and go without a change of the city's own status.
            let moving = |city: &CityInfo| {
                matches!(
                    city.status,
                    CityStatus::StartingAgents | CityStatus::Stopping
                )
            };
            let pause = if city.is_some_and(moving) {
                Instant::now() + PROGRESS_STEP
            } else {
                deadline
            };
            tokio::select! {
                changed = views.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(pause.min(deadline)) => {}
                () = self.items.closed() => return,
            }
        }
    }

    fn is_over(&self, city: Option<&CityInfo>) -> bool {
        match city.map(|city| city.status) {
            None => self.want_stopped,
            Some(CityStatus::Stopped) => true,
            Some(CityStatus::Running | CityStatus::InitFailed | CityStatus::Crashed) => {
                !self.want_stopped
            }
            Some(_) => false,
        }
    }

    async fn item(&self, city: Option<&CityInfo>) -> Value {
        let Some(city) = city else {
            return json!({ "status": "stopped" });
        };
        let mut item = json!(city);
        let has_agents = matches!(
            city.status,
            CityStatus::StartingAgents | CityStatus::Running | CityStatus::Stopping
        );
        if has_agents && let Ok(view) = self.door.city(&city.path).view().await {
            add_agents(&mut item, &view, city.status);
        }
        item
    }
}

/// How many there are, and who is awaited: those that start, or those that have not left yet.
fn add_agents(item: &mut Value, view: &CityView, status: CityStatus) {
    let running = view
        .instances
        .iter()
        .filter(|instance| instance.running)
        .count();
    let starting: Vec<_> = view
        .instances
        .iter()
        .filter(|instance| match status {
            CityStatus::Stopping => instance.running,
            _ => instance.state == AgentState::Starting,
        })
        .map(|instance| &instance.qualified_name)
        .collect();
    item["agents"] = json!({ "total": view.instances.len(), "running": running });
    item["starting"] = json!(starting);
}
