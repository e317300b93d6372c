//! `gc version`.

use clap::Args;
use serde_json::json;

use super::context::Context;
use super::error::CliResult;
use crate::control::wire;

/// Arguments of `gc version`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc version\n  gc version --long\n  gc version --json")]
pub(super) struct VersionArgs {
    /// Also print commit, protocol and target
    #[arg(long)]
    long: bool,
}

impl VersionArgs {
    /// Prints the version.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let version = env!("CARGO_PKG_VERSION");
        let commit = option_env!("GC_COMMIT").filter(|commit| !commit.is_empty());
        let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        let out = context.out;
        if out.json {
            let mut document =
                json!({"version": version, "protocol": wire::VERSION, "target": target});
            if let Some(commit) = commit {
                document["commit"] = json!(commit);
            }
            out.document(&document)?;
            return Ok(0);
        }
        out.line(format!("gc {version}"))?;
        if self.long {
            if let Some(commit) = commit {
                out.line(format!("commit    {commit}"))?;
            }
            out.line(format!("protocol  {}", wire::VERSION))?;
            out.line(format!("target    {target}"))?;
        }
        Ok(0)
    }
}
