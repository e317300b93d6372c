//! Questions that a program asks before it is ready, and their answers (sessions.md 3, step 7).

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::effects::PROBE_LIMIT;
use super::ready::LINES;
use crate::model::{Dismiss, RunToken};
use crate::ports::{CityPorts, Fence, Key, StartSpec};

/// How often is looked for a dialog.
const LOOK: Duration = Duration::from_millis(300);

/// Between two keys: programs redraw in between.
const BETWEEN: Duration = Duration::from_millis(200);

/// Answers each dialog once, as often as one shows, for as long as it is polled: whoever waits for
/// the run to be ready drops it then, and nothing is pressed any more.
pub(super) async fn answer(ports: &CityPorts, token: &RunToken, spec: &StartSpec) -> Infallible {
    let caps = ports.sessions.caps_of(&spec.session);
    let dialogs = spec.launch.dismiss.iter();
    let mut open: Vec<&Dismiss> = dialogs.filter(|_| caps.screen && caps.keys).collect();
    while !open.is_empty() {
        let look = ports.sessions.peek(spec.session.clone(), LINES);
        if let Ok(Ok(screen)) = timeout(PROBE_LIMIT, look).await {
            let shown = |dialog: &&Dismiss| screen.contains(&dialog.matches);
            if let Some(at) = open.iter().position(shown) {
                press(ports, token, spec, &open.remove(at).keys).await;
            }
        }
        sleep(LOOK).await;
    }
    std::future::pending().await
}

async fn press(ports: &CityPorts, token: &RunToken, spec: &StartSpec, keys: &[String]) {
    for (at, key) in keys.iter().enumerate() {
        if at > 0 {
            sleep(BETWEEN).await;
        }
        let (name, fence) = (spec.session.clone(), Fence::Token(token.clone()));
        let key = vec![Key::from(key.as_str())];
        let pressed = timeout(PROBE_LIMIT, ports.sessions.send_keys(name, fence, key)).await;
        if let Ok(Err(error)) = pressed {
            tracing::warn!(agent = %spec.agent, %error, "a dialog was not answered");
            return;
        }
    }
}
