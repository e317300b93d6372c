//! Checkouts by the user's `git`.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::sources::tree_hash;
use super::fetch::FetchError;
use super::{FILE, Remote};

/// How often a running `git` is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A checkout of `target` in a temporary directory, with its commit and hash.
pub(super) fn checkout(
    remote: &Remote,
    target: &str,
    cache: &Path,
    limit: Duration,
) -> Result<(String, String, tempfile::TempDir), FetchError> {
    let dir = tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(cache)?;
    let git = Git {
        dir: dir.path(),
        what: remote.to_string(),
        limit,
    };
    git.run(&["init", "-q"])?;
    let direct = [
        "fetch",
        "-q",
        "--depth",
        "1",
        "--no-tags",
        "--no-recurse-submodules",
        "--",
    ];
    let found = git
        .run(&[&direct[..], &[&remote.source, target]].concat())
        .and_then(|_| git.run(&["rev-parse", "--verify", "FETCH_HEAD^{commit}"]));
    let commit = match found {
        Ok(commit) => commit,
        // Some servers give out branches and tags only, and no single commit.
        Err(_) if is_hex(target) => {
            let refs = [
                "+refs/heads/*:refs/gc/heads/*",
                "+refs/tags/*:refs/gc/tags/*",
            ];
            let all = ["fetch", "-q", "--no-tags", "--no-recurse-submodules", "--"];
            git.run(&[&all[..], &[&remote.source], &refs[..]].concat())?;
            git.run(&["rev-parse", "--verify", &format!("{target}^{{commit}}")])?
        }
        Err(error) => return Err(error),
    };
    let commit = commit.trim().to_owned();
    if commit.len() < 12 || !is_hex(&commit) {
        return Err(FetchError::Refused {
            what: remote.to_string(),
            why: format!("git names the commit {commit:?}"),
        });
    }
    git.run(&["checkout", "-q", "--detach", &commit])?;
    fs::remove_dir_all(dir.path().join(".git"))?;
    let refused = |why: String| FetchError::Refused {
        what: remote.to_string(),
        why,
    };
    if !dir.path().join(&remote.path).join(FILE).is_file() {
        return Err(refused(format!("there is no {FILE} in it")));
    }
    let hash = tree_hash(dir.path()).map_err(|error| refused(error.why))?;
    Ok((commit, format!("sha256:{hash}"), dir))
}

fn is_hex(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The user's git, without prompts, hooks, submodules and inherited settings.
struct Git<'a> {
    dir: &'a Path,
    what: String,
    limit: Duration,
}

impl Git<'_> {
    fn run(&self, args: &[&str]) -> Result<String, FetchError> {
        let failed = |why: String| FetchError::Git {
            what: self.what.clone(),
            why,
        };
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        for setting in [
            "core.hooksPath=/dev/null",
            "submodule.recurse=false",
            "advice.detachedHead=false",
            "init.defaultBranch=main",
            "core.autocrlf=false",
            "protocol.ext.allow=never",
        ] {
            command.args(["-c", setting]);
        }
        let mut child = command
            .arg("-C")
            .arg(self.dir)
            .args(args)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
            .env("GIT_LFS_SKIP_SMUDGE", "1")
            .env("LC_ALL", "C")
            .env_remove("SSH_ASKPASS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => failed("git is not installed".into()),
                _ => failed(error.to_string()),
            })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let reader = |pipe: Option<Box<dyn io::Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = pipe.map(|pipe| pipe.take(1 << 20).read_to_end(&mut text)); // what there is
                String::from_utf8_lossy(&text).into_owned()
            })
        };
        let out = reader(out.map(|pipe| Box::new(pipe) as _));
        let err = reader(err.map(|pipe| Box::new(pipe) as _));
        let deadline = Instant::now() + self.limit;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= deadline {
                // With its helpers, which would keep the pipes open.
                if let Some(group) = i32::try_from(child.id())
                    .ok()
                    .and_then(rustix::process::Pid::from_raw)
                {
                    let _ =
                        rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait(); // it is gone
                break None;
            }
            std::thread::sleep(LOOK);
        };
        let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        let (out, err) = (text(out), text(err));
        match status {
            Some(status) if status.success() => Ok(out),
            Some(_) => Err(failed(err.trim().to_owned())),
            None => Err(failed(format!("git took longer than {:?}", self.limit))),
        }
    }
}
