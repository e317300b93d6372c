//! Read-outs of the machine.

use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;

use super::MachineState;
use super::record::Record;
use crate::city::CityMsg;
use crate::model::{CityStatus, MachineView};
use crate::tree::{Kind, LastError, Node, Tree};

/// A city silent for this long is shown as unresponsive.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);

impl MachineState {
    /// Publishes an immutable snapshot, if anything changed. Readers never wait for an actor.
    pub(super) fn publish(&self) {
        let view = self.view();
        self.args.views.send_if_modified(|published| {
            let changed = **published != view;
            if changed {
                *published = Arc::new(view);
            }
            changed
        });
    }

    fn view(&self) -> MachineView {
        let attempted = |record: &Record| record.status != CityStatus::Pending;
        let mut cities: Vec<_> = self.cities.values().map(Record::info).collect();
        cities.sort_by(|a, b| a.name.cmp(&b.name));
        MachineView {
            started_at: self.began_at,
            ready: self.registry_read && self.cities.values().all(attempted),
            registry_read: self.registry_read,
            registry_error: self.registry_error.clone(),
            cities,
        }
    }

    /// Collects the tree in a task: a stuck city costs its own answer, nobody else's.
    pub(super) fn answer_tree(&self, reply: RpcReplyPort<Tree>) {
        let now = self.args.ports.clock.now();
        let taken_at = self.args.ports.clock.wall();
        let mut root = Node::new(Kind::Machine, "machine", "machine", "running")
            .gauged(&self.args.gauge, now)
            .since(self.began_at, now.saturating_duration_since(self.began));
        let log = self.args.ports.journal.trouble();
        let log = Node::helper(Kind::EventLog, "event-log", "", log);
        let cities: Vec<_> = self
            .cities
            .values()
            .map(|record| (down(record, now), record.child.clone()))
            .collect();
        tokio::spawn(async move {
            let asked: Vec<_> = cities
                .into_iter()
                .map(|(fallback, city)| {
                    tokio::spawn(async move {
                        let Some(city) = city else { return fallback };
                        let node = city.ask(ANSWER_LIMIT, CityMsg::Tree).await;
                        node.map_or_else(
                            || Node {
                                state: "unresponsive".into(),
                                ..fallback.clone()
                            },
                            |node| Node {
                                restarts_in_window: fallback.restarts_in_window,
                                ..node
                            },
                        )
                    })
                })
                .collect();
            for node in asked {
                root.children.extend(node.await.ok());
            }
            root.children.sort_by(|a, b| a.name.cmp(&b.name));
            root.children.insert(0, log);
            let index = root.handled;
            let tree = Tree {
                index,
                taken_at,
                root,
            };
            let _ = reply.send(tree); // the caller may have timed out
        });
    }
}

/// What is known of a city without asking it.
fn down(record: &Record, now: tokio::time::Instant) -> Node {
    let name = record.entry.name.as_str();
    let mut node = Node::new(Kind::City, name, name, record.status.as_str());
    if let Some(city) = &record.child {
        node = node.gauged(city.gauge(), now);
    }
    node.restarts_in_window = Some(record.crashes);
    node.retry_at = record.retry.as_ref().map(|(at, _)| *at);
    node.last_error = record.error.as_ref().map(|message| LastError {
        at: record.failed_at,
        message: message.clone(),
    });
    node
}
