//! Cities whose agents are in tmux.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{Place, Said, eventually};

/// A place with a tmux of its own. Servers end with it, also when a test fails.
pub(crate) struct Town {
    pub(crate) place: Place,
    pub(crate) program: PathBuf,
}

impl Town {
    /// `None`: there is no tmux to test with.
    pub(crate) fn new() -> Option<Self> {
        let program = super::program()?;
        let mut place = Place::new();
        place.use_tmux(program.clone());
        Some(Self { place, program })
    }

    /// Notes every run of tmux by gc from now on in the file this gives, one line for each.
    pub(crate) fn count_runs(&mut self) -> PathBuf {
        let (counting, log) = (self.place.path("tmux"), self.place.path("runs"));
        let (real, lines) = (self.program.display(), log.display());
        let text = format!("#!/bin/sh\necho \"$@\" >>{lines}\nexec {real} \"$@\"\n");
        fs::write(&counting, text).unwrap();
        fs::set_permissions(&counting, fs::Permissions::from_mode(0o755)).unwrap();
        self.place.use_tmux(counting);
        log
    }

    /// A city that is up on tmux.
    pub(crate) fn up(&self, toml: &str) -> PathBuf {
        let toml = format!("[session]\nprovider = \"tmux\"\n{toml}");
        let city = self.place.city("town", &toml);
        self.place.gc(&city, &["start"]).ok();
        city
    }

    /// Runs tmux on the server of that name, as a user would.
    pub(crate) fn tmux(&self, server: &str, args: &[&str]) -> Said {
        let mut command = Command::new(&self.program);
        command.env_remove("TMUX");
        command.env("TMUX_TMPDIR", self.place.path(""));
        Said::by(command.args(["-L", server]).args(args))
    }

    /// Process id of the server.
    pub(crate) fn server(&self, name: &str) -> i32 {
        let said = self.tmux(name, &["display-message", "-p", "#{pid}"]).ok();
        said.out.trim().parse().unwrap()
    }

    /// Sockets in this place.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let uid = rustix::process::getuid().as_raw();
        let dir = self.place.path(&format!("tmux-{uid}"));
        let Ok(entries) = std::fs::read_dir(dir) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits until the screen of an agent shows this.
    pub(crate) fn shows(&self, city: &Path, agent: &str, text: &str) -> String {
        eventually(&format!("{text:?} on the screen of {agent}"), || {
            let said = self.place.gc(city, &["agent", "peek", agent]).ok();
            said.out.contains(text).then_some(said.out)
        })
    }
}
