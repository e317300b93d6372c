//! Lines that are run for an agent that is up (sessions.md 3, steps 9 and 11).

use std::sync::Arc;

use crate::model::RunToken;
use crate::ports::{CityPorts, RunOf, ShellJob, StartSpec};

/// Runs the lines of `key` one after the other, as the agent itself would. Those that fail are
/// returned as warnings: the agent runs all the same.
pub(super) async fn run(
    ports: &CityPorts,
    key: &str,
    lines: impl IntoIterator<Item = String>,
    token: &RunToken,
    spec: &Arc<StartSpec>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for line in lines {
        let job = ShellJob {
            line,
            dir: spec.launch.work_dir.clone(),
            env: ports.sessions.vars_of(&spec.session),
            run: Some(RunOf {
                token: token.clone(),
                spec: spec.clone(),
            }),
            limit: spec.setup_timeout,
        };
        if let Err(error) = ports.shell.run(job).await {
            tracing::warn!(agent = %spec.agent, %error, "{key} failed");
            warnings.push(format!("{key} failed: {error}"));
        }
    }
    warnings
}
