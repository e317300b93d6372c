//! What happens before a run is launched, on every provider that runs agents here: directory,
//! environment, prompt, overlays, `pre_start` (sessions.md 3 and 4).

mod overlay;
mod prompt;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gascity_actors::model::{Command, FailureClass, RunToken, StartFailure};
use gascity_actors::ports::{RunOf, StartSpec};
use rustix::io::Errno;

pub(super) use overlay::{copy_files, count_files};

use super::SubprocessConfig;
use super::environment::{Environment, Runner, Unset};
use crate::control::files;
use crate::shell;

/// A failed start that the agent is to blame for.
pub(crate) fn agent_failure(stage: &'static str, detail: impl Into<String>) -> StartFailure {
    StartFailure::new(stage, FailureClass::Agent, detail)
}

/// A failed start that the provider is to blame for.
pub(crate) fn provider_failure(stage: &'static str, detail: impl Into<String>) -> StartFailure {
    StartFailure::new(stage, FailureClass::Provider, detail)
}

/// Makes runs of one city ready to be launched.
#[derive(Debug)]
pub(crate) struct Preparer {
    config: SubprocessConfig,
    runner: Mutex<Arc<Runner>>,
}

/// Where, with what and how to launch.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The working directory; it exists.
    pub(crate) dir: PathBuf,
    /// The whole environment of the agent.
    pub(crate) env: Environment,
    /// The command with its prompt; `None`: as configured.
    pub(crate) command: Option<Command>,
    /// What went wrong without keeping it from running, for a person.
    pub(crate) warnings: Vec<String>,
}

impl Preparer {
    /// For the city of these settings, with `vars` as the runner's own environment.
    pub(crate) fn new(
        config: SubprocessConfig,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        Self {
            runner: Mutex::new(Arc::new(Runner::new(vars, &config.env_passthrough))),
            config,
        }
    }

    /// What every agent inherits from the runner.
    pub(crate) fn inherited(&self) -> Environment {
        self.runner().inherited().clone()
    }

    /// What agents inherit from the next start on.
    pub(crate) fn set_passthrough(&self, globs: &[String]) {
        let runner = Arc::new(self.runner().with(globs));
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = runner;
    }

    fn runner(&self) -> Arc<Runner> {
        let runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner);
        runner.clone()
    }

    /// Does all that is to be done here. For an agent that asks for nothing of it, that is to
    /// look at its directory; nothing is awaited, written or run.
    pub(crate) async fn prepare(
        &self,
        token: &RunToken,
        spec: &StartSpec,
    ) -> Result<Prepared, StartFailure> {
        let launch = &spec.launch;
        let dir = work_dir(&self.config.root, &launch.work_dir)?;
        let mut env = self.environment(token, spec, &dir)?;
        if launch.heartbeat.is_some() {
            files::create_private_dir(&self.heartbeats())
                .map_err(|error| provider_failure("heartbeat", error.to_string()))?;
        }
        let mut command = None;
        if launch.prompt.text.is_some() {
            command = self.write_prompt(spec, &dir, &mut env).await?;
        }
        let mut warnings = Vec::new();
        if !launch.overlays.is_empty() {
            warnings.extend(self.stage(spec, &dir).await?);
        }
        for line in &launch.pre_start {
            let limit = spec.setup_timeout;
            let line = shell::line(line.clone(), dir.clone(), env.clone(), limit);
            let ran = shell::output_of(line).await;
            ran.map_err(|error| agent_failure("pre_start", error.to_string()))?;
        }
        Ok(Prepared {
            dir,
            env,
            command,
            warnings,
        })
    }

    /// The environment of a line that gc runs for itself: what all agents of the city see, and
    /// the line's own variables.
    pub(crate) fn line_environment(
        &self,
        own: &BTreeMap<String, String>,
    ) -> Result<Environment, Unset> {
        let bin = self.config.root.join(".gc/bin");
        self.runner()
            .environment(own, self.config.city_vars(), bin.as_os_str())
    }

    /// The environment of a run that is up, for what is run on its behalf with `more`.
    pub(crate) fn run_environment(
        &self,
        run: &RunOf,
        more: &BTreeMap<String, String>,
    ) -> Result<Environment, StartFailure> {
        let spec = &run.spec;
        let dir = work_dir(&self.config.root, &spec.launch.work_dir)?;
        let mut env = self.environment(&run.token, spec, &dir)?;
        if spec.launch.prompt.text.is_some() {
            env.insert("GC_PROMPT_FILE".into(), self.prompt_file(spec).into());
        }
        env.extend(more.iter().map(|(name, value)| (name.into(), value.into())));
        Ok(env)
    }

    /// The environment of a run (sessions.md 4).
    pub(crate) fn environment(
        &self,
        token: &RunToken,
        spec: &StartSpec,
        dir: &Path,
    ) -> Result<Environment, StartFailure> {
        let (config, launch) = (&self.config, &spec.launch);
        let mut injected = config.city_vars();
        injected.extend([
            ("GC_AGENT", spec.agent.as_str().into()),
            ("GC_TEMPLATE", spec.template.as_str().into()),
            ("GC_SESSION_NAME", spec.session.as_str().into()),
            ("GC_SESSION_ID", token.as_str().into()),
            ("GC_DIR", dir.into()),
        ]);
        if let Some(rig) = &launch.rig {
            injected.push(("GC_RIG", rig.name.clone().into()));
            injected.push(("GC_RIG_ROOT", rig.root.clone().into()));
        }
        if let Some(file) = &launch.heartbeat {
            let path = match file.as_os_str().is_empty() {
                true => self.heartbeats().join(format!("{}.json", spec.session)),
                false => dir.join(file),
            };
            injected.push(("GC_HEARTBEAT_FILE", path.into()));
        }
        let bin = config.root.join(".gc/bin");
        self.runner()
            .environment_with(
                &launch.env_passthrough,
                &launch.env,
                injected,
                bin.as_os_str(),
            )
            .map_err(|unset| agent_failure("env", unset.to_string()))
    }

    /// Where agents without a heartbeat file of their own have it.
    fn heartbeats(&self) -> PathBuf {
        self.config.root.join(".gc/runtime/heartbeats")
    }

    /// Copies the overlays. Warns of files that were kept, because they are somebody's own.
    async fn stage(&self, spec: &StartSpec, dir: &Path) -> Result<Option<String>, StartFailure> {
        let record = self.config.root.join(".gc/runtime/overlay");
        let record = record.join(format!("{}.json", spec.session));
        let (sources, dir) = (spec.launch.overlays.clone(), dir.to_owned());
        let staged = tokio::task::spawn_blocking(move || overlay::stage(&sources, &dir, &record));
        let staged = staged
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        let kept = staged.map_err(|error| agent_failure("overlay", error.to_string()))?;
        if kept.is_empty() {
            return Ok(None);
        }
        let files = kept.iter().map(|path| path.display().to_string());
        let files = files.collect::<Vec<_>>().join(", ");
        tracing::warn!(agent = %spec.agent, %files, "files of the user's own were kept");
        Ok(Some(format!(
            "overlay: files of your own were kept: {files}"
        )))
    }
}

/// Resolves a working directory. A missing one is created inside the city, and an error
/// anywhere else.
pub(crate) fn work_dir(root: &Path, wanted: &Path) -> Result<PathBuf, StartFailure> {
    let fail =
        |error: io::Error| agent_failure("work_dir", format!("{}: {error}", wanted.display()));
    match wanted.canonicalize() {
        Ok(dir) if dir.is_dir() => return Ok(dir),
        Ok(_) => return Err(fail(Errno::NOTDIR.into())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        Err(missing) if !is_inside(root, wanted) => return Err(fail(missing)),
        Err(_) => {}
    }
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o755)
        .create(wanted)
        .map_err(fail)?;
    wanted.canonicalize().map_err(fail)
}

/// Whether a path that does not exist yet would lie under `root`, symbolic links resolved.
fn is_inside(root: &Path, wanted: &Path) -> bool {
    let mut existing = wanted
        .ancestors()
        .skip_while(|dir| fs::symlink_metadata(dir).is_err());
    let Some(base) = existing.next() else {
        return false;
    };
    let rest = wanted.strip_prefix(base).unwrap_or(Path::new(""));
    base.canonicalize().is_ok_and(|base| base.starts_with(root))
        && rest
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_created_inside_the_city_only() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("city");
        fs::create_dir_all(root.join("real")).unwrap();
        std::os::unix::fs::symlink(&base, root.join("out")).unwrap();

        assert_eq!(
            work_dir(&root, &root.join("a/b")).unwrap(),
            root.join("a/b")
        );
        for outside in [base.join("x"), root.join("out/x"), root.join("q/../../x")] {
            let failure = work_dir(&root, &outside).unwrap_err();
            assert_eq!(
                (failure.stage, failure.class),
                ("work_dir", FailureClass::Agent)
            );
        }
        assert!(!base.join("x").exists());
        fs::write(root.join("file"), "").unwrap();
        assert!(work_dir(&root, &root.join("file")).is_err());
    }
}
