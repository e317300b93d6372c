//! Waiting for whatever ends the process: a signal, a client, or the end of the tree.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::live::Live;
use super::ops::{Upgrade, Wish};
use super::{FORCED, INTERNAL, OnSigterm, TERMINATED};
use crate::{MachineRef, StopMode};

/// How it ended.
pub(super) enum End {
    /// The process is to exit with this code.
    Exit(u8),
    /// The tree let go of everything, for another program to go on.
    Upgrade(Upgrade),
}

/// Serves signals and wishes until the tree has ended.
pub(super) async fn wait(
    door: &MachineRef,
    ended: impl Future<Output = bool>,
    wishes: &mut mpsc::Receiver<Wish>,
    signals: &mut Signals,
    live: &Live,
) -> End {
    tokio::pin!(ended);
    let mut asked = 0_u32;
    let mut forced = None;
    let mut upgrade = None;
    loop {
        tokio::select! {
            clean = &mut ended => {
                return match (clean, forced, upgrade) {
                    (false, ..) => End::Exit(INTERNAL),
                    (_, Some(code), _) => End::Exit(code),
                    (_, _, Some(upgrade)) => End::Upgrade(upgrade),
                    _ => End::Exit(0),
                };
            }
            Some(wish) = wishes.recv() => match wish {
                Wish::Stop(wish) => {
                    upgrade = None;
                    live.notifier().tell("STOPPING=1");
                    let door = door.clone();
                    tokio::spawn(async move {
                        let summary = door.stop(wish.mode).await;
                        if let (Some(reply), Ok(summary)) = (wish.reply, summary) {
                            let _ = reply.send(summary); // the client may be gone
                        }
                    });
                }
                Wish::Upgrade(wish) if asked == 0 => {
                    tracing::info!(exe = %wish.exe.display(), to = wish.version, "upgrade");
                    upgrade = Some(wish);
                    stop(door, StopMode::Detach);
                }
                Wish::Upgrade(_) => {} // its client sees that it is dropped
            },
            kind = signals.next() => match kind {
                Kind::Reload => reload(door, live),
                Kind::Tree => log_tree(door),
                Kind::Stop { term } => {
                    asked += 1;
                    upgrade = None;
                    let mode = match (asked, term, live.on_sigterm()) {
                        (2.., ..) => StopMode::Force,
                        (_, true, OnSigterm::Detach) => StopMode::Detach,
                        _ => StopMode::Graceful,
                    };
                    if asked > 1 {
                        forced = Some(if term { TERMINATED } else { FORCED });
                    }
                    tracing::info!(?mode, "told to stop by a signal");
                    live.notifier().tell("STOPPING=1");
                    stop(door, mode);
                }
            }
        }
    }
}

fn stop(door: &MachineRef, mode: StopMode) {
    let door = door.clone();
    tokio::spawn(async move { door.stop(mode).await });
}

/// Settings, log file and registry anew, and a tick for every city.
fn reload(door: &MachineRef, live: &Live) {
    let (door, live) = (door.clone(), live.clone());
    tokio::spawn(async move {
        live.notifier().reloading();
        live.log().reopen();
        live.reload(&door);
        if let Err(error) = door.reconcile().await {
            tracing::warn!(error, "reload");
        }
        live.notifier().tell("READY=1");
    });
}

fn log_tree(door: &MachineRef) {
    let door = door.clone();
    tokio::spawn(async move {
        match door.tree().await {
            Ok(tree) => tracing::info!("actors:\n{tree}"),
            Err(error) => tracing::warn!(%error, "no actor tree"),
        }
    });
}

enum Kind {
    Stop { term: bool },
    Reload,
    Tree,
}

/// The signals this process listens to. Made before anything runs: a signal must find somebody who
/// stops it properly.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    user: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Kind {
        tokio::select! {
            _ = self.interrupt.recv() => Kind::Stop { term: false },
            _ = self.terminate.recv() => Kind::Stop { term: true },
            _ = self.hangup.recv() => Kind::Reload,
            _ = self.user.recv() => Kind::Tree,
        }
    }
}
