//! Which tmux server is the city's own, and how it is reached.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gascity_actors::model::sha256_hex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::timeout;

use super::TmuxConfig;
use super::hint::TmuxFile;
use super::line::{Line, encode};
use super::link::{ANSWER_LIMIT, Link};
use super::program::{QUESTION, answer};
use crate::sessions::environment::Environment;
use crate::sessions::sys;

/// The session that keeps the server alive and holds our connection. The user has no use for it.
pub(super) const KEEPER: &str = "_gc";

/// Size of a pane nobody looks at.
pub(super) const SIZE: (&str, &str) = ("200", "50");

/// How long a server may take to leave.
const LEAVE: Duration = Duration::from_secs(2);

/// A live connection and the server at its other end.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) link: Link,
    pub(super) pid: i32,
    pub(super) pidfd: Arc<OwnedFd>,
    pub(super) socket: PathBuf,
    /// Names in its environment, which every session would inherit.
    pub(super) environment: Vec<String>,
}

impl Server {
    /// Waits until the process has ended.
    pub(super) async fn gone(&self) {
        gone(self.pidfd.clone()).await;
    }

    /// Wakes it to look after its children: some versions lose that signal.
    pub(super) fn poke(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::CHILD); // it may be gone
    }

    /// Ends the server with everything in it, and removes its socket.
    pub(super) async fn end(&self) {
        let _ = timeout(LEAVE, self.link.ask(Line::new(["kill-server"]))).await;
        if timeout(LEAVE, self.gone()).await.is_err() {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            let _ = timeout(LEAVE, self.gone()).await;
        }
        let is_socket =
            fs::symlink_metadata(&self.socket).is_ok_and(|meta| meta.file_type().is_socket());
        // Somebody may have started another one there meanwhile.
        if is_socket && UnixStream::connect(&self.socket).is_err() {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

/// Waits until the process behind a pidfd has ended.
pub(super) async fn gone(pidfd: Arc<OwnedFd>) {
    if let Ok(pidfd) = sys::watchable(pidfd) {
        let _ = pidfd.readable().await; // fails only when the runtime ends
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// None was to be started, and none is there.
    NoServer,
    Failed(String),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Failed(format!("tmux: {error}"))
    }
}

/// Where a server is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// `-L`: by name, in the usual directory.
    Name(String),
    /// `-S`: by its socket.
    Path(PathBuf),
}

impl Address {
    fn option(&self) -> [OsString; 2] {
        match self {
            Self::Name(name) => ["-L".into(), name.into()],
            Self::Path(path) => ["-S".into(), path.into()],
        }
    }
}

/// What a look for the city's server came to.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It runs here.
    Running(Address),
    /// There is none; it can be started here.
    Free(Address),
}

/// Whose server it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    Us,
    Others,
}

/// Connects to servers of one city.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) config: TmuxConfig,
    /// Environment of the client, which a server that it starts inherits.
    pub(super) environment: Environment,
    /// A server without a socket was looked for.
    pub(super) searched: AtomicBool,
}

impl Connector {
    /// Connects to the city's server. If there is none, one is started, or that is an error.
    pub(super) async fn connect(self: &Arc<Self>, start: bool) -> Result<Server, ConnectError> {
        let me = self.clone();
        let found = tokio::task::spawn_blocking(move || me.find()).await;
        let found = found.map_err(|error| ConnectError::Failed(error.to_string()))??;
        let (Found::Running(found) | Found::Free(found)) = match found {
            Found::Free(_) if !start => return Err(ConnectError::NoServer),
            found => found,
        };
        match self.open(&found).await {
            // Another city was quicker.
            Err(Refused::Taken) if self.config.socket.is_none() => {
                let hashed = Address::Name(self.hashed_name());
                self.open(&hashed).await.map_err(ConnectError::from)
            }
            done => done.map_err(ConnectError::from),
        }
    }

    fn find(&self) -> Result<Found, ConnectError> {
        let hint = self.hint();
        let remembered = hint.read().map(Address::Path);
        let hashed = Address::Name(self.hashed_name());
        let plain = Address::Name(self.plain_name());
        for address in remembered.iter().chain([&hashed]) {
            if self.owner(address)? == Owner::Us {
                return Ok(Found::Running(address.clone()));
            }
        }
        let owner = self.owner(&plain)?;
        if owner != Owner::Us {
            let mut places: Vec<Address> = remembered.into_iter().collect();
            places.push(hashed.clone());
            places.extend((owner == Owner::Nobody).then(|| plain.clone()));
            if let Some(address) = self.recall(&places)? {
                return Ok(Found::Running(address));
            }
        }
        match (owner, &self.config.socket) {
            (Owner::Us, _) => Ok(Found::Running(plain)),
            (Owner::Nobody, _) => Ok(Found::Free(plain)),
            (Owner::Others, None) => Ok(Found::Free(hashed)),
            (Owner::Others, Some(name)) => Err(ConnectError::Failed(taken(name))),
        }
    }

    /// Whether the server can be had under the name that the config gives it, and its own config
    /// read.
    pub(super) fn probe(&self) -> Result<(), String> {
        if let Some(name) = &self.config.socket {
            match self.owner(&Address::Name(self.plain_name())) {
                Ok(Owner::Others) => return Err(taken(name)),
                Err(ConnectError::Failed(why)) => return Err(why),
                _ => {}
            }
        }
        match self.config.tmux_config.as_str() {
            "" | "user" | "none" => Ok(()),
            path => {
                let path = self.config.city.root.join(path);
                let read = fs::File::open(&path).map(drop);
                read.map_err(|error| format!("tmux_config {}: {error}", path.display()))
            }
        }
    }

    /// The socket of an address.
    pub(super) fn socket(&self, address: &Address) -> PathBuf {
        let name = match address {
            Address::Path(path) => return path.clone(),
            Address::Name(name) => name,
        };
        let set = self.environment.get(OsStr::new("TMUX_TMPDIR"));
        let dir = set.map(PathBuf::from).filter(|dir| dir.is_dir());
        let dir = dir.unwrap_or_else(|| "/tmp".into());
        let uid = rustix::process::getuid().as_raw();
        dir.join(format!("tmux-{uid}")).join(name)
    }

    /// Where the socket was last time.
    pub(super) fn hint(&self) -> TmuxFile {
        TmuxFile::of(&self.config.city.root)
    }

    fn plain_name(&self) -> String {
        let name = self.config.socket.as_deref();
        match name.unwrap_or(self.config.city.city_name.as_str()) {
            "default" => "gc-default".to_owned(),
            name => name.to_owned(),
        }
    }

    fn hashed_name(&self) -> String {
        use std::os::unix::ffi::OsStrExt as _;
        let hash = sha256_hex(self.config.city.root.as_os_str().as_bytes());
        format!("{}-{}", self.config.city.city_name, &hash[..8])
    }

    /// The city's mark on its server.
    fn mark(&self) -> String {
        encode(&self.config.city.root.to_string_lossy())
    }

    pub(super) fn owner(&self, address: &Address) -> Result<Owner, ConnectError> {
        // Most often there is none, or one that died and left its socket: no need to run anything.
        match UnixStream::connect(self.socket(address)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Owner::Others);
            }
            Err(_) => return Ok(Owner::Nobody),
            Ok(_) => {}
        }
        let mut command = self.command(address);
        command.args(["show-options", "-sqv", "@gc_city"]);
        let answer = answer(command, QUESTION)?;
        Ok(match answer {
            None => Owner::Nobody,
            Some(mark) if mark.trim_end() == self.mark() => Owner::Us,
            Some(_) => Owner::Others,
        })
    }

    fn command(&self, address: &Address) -> Command {
        let mut command = Command::new(&self.config.program);
        command
            .env_clear()
            .envs(&self.environment)
            .current_dir("/")
            .arg("-u")
            .args(address.option());
        command
    }

    async fn open(&self, address: &Address) -> Result<Server, Refused> {
        let mut command = self.command(address);
        match self.config.tmux_config.as_str() {
            "" | "user" => {}
            "none" => drop(command.args(["-f", "/dev/null"])),
            path => drop(command.arg("-f").arg(self.config.city.root.join(path))),
        }
        command.args([
            "-C",
            "new-session",
            "-A",
            "-s",
            KEEPER,
            "-x",
            "80",
            "-y",
            "24",
        ]);
        command.args(["--", "tail", "-f", "/dev/null"]);
        let link = Link::open(command)?;
        let who = ["display-message", "-p", "#{@gc_city}|#{pid}|#{socket_path}"];
        let mark = self.mark();
        let hello = Line::new(["set-option", "-s", "-o", "-q", "@gc_city", &mark]).and(who);
        let answer = timeout(ANSWER_LIMIT, link.ask(hello)).await;
        let blocks = answer.map_err(|_| failed("tmux does not answer"))??;
        let text = blocks.last().filter(|b| b.ok).map(|b| b.text());
        let text = text.ok_or_else(|| failed("tmux gives no answer that makes sense"))?;
        let mut fields = text.splitn(3, '|');
        if fields.next() != Some(mark.as_str()) {
            return Err(Refused::Taken);
        }
        let pid = fields.next().and_then(|pid| pid.parse::<i32>().ok());
        let pid = pid.ok_or_else(|| failed("tmux does not say who it is"))?;
        let socket = PathBuf::from(fields.next().unwrap_or_default());
        let pidfd = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let pidfd = pidfd.ok_or_else(|| failed("tmux does not say who it is"))?;
        let pidfd = Arc::new(pidfd.map_err(io::Error::from)?);
        let environment = self.settle(&link).await?;
        self.hint().write(&socket, pid);
        Ok(Server {
            link,
            pid,
            pidfd,
            socket,
            environment,
        })
    }

    /// Settings of the server and of the connection; the names in the server's environment.
    async fn settle(&self, link: &Link) -> Result<Vec<String>, Refused> {
        let history = self.config.history_lines.to_string();
        let size = format!("{}x{}", SIZE.0, SIZE.1);
        let settings = Line::new(["refresh-client", "-f", "no-output,ignore-size"])
            .and(["set-option", "-s", "exit-empty", "off"])
            .and(["set-option", "-s", "exit-unattached", "off"])
            .and(["set-option", "-g", "destroy-unattached", "off"])
            .and(["set-option", "-g", "update-environment", ""])
            .and(["set-option", "-g", "history-limit", &history])
            .and(["set-option", "-g", "default-size", &size])
            // Clients need it, agents do not; what each would have to drop costs a program more.
            .and(["set-environment", "-g", "-u", "TMUX_TMPDIR"])
            .and(["show-environment", "-g"]);
        let blocks = link.ask(settings).await?;
        let Some(shown) = blocks.last().filter(|block| block.ok) else {
            let why = blocks.last().map(|block| block.text()).unwrap_or_default();
            return Err(failed(format!("tmux refuses its settings: {why}")));
        };
        let names = shown.lines.iter().filter_map(|line| {
            let text = String::from_utf8_lossy(line);
            let (name, _) = text.split_once('=')?;
            Some(name.to_owned())
        });
        Ok(names.collect())
    }
}

fn taken(name: &str) -> String {
    format!("the tmux server {name} belongs to somebody else; set another `socket` in [session]")
}

/// Why an attempt came to nothing.
#[derive(Debug)]
enum Refused {
    /// It is another city's server.
    Taken,
    Failed(String),
}

fn failed(why: impl Into<String>) -> Refused {
    Refused::Failed(why.into())
}

impl From<super::link::Lost> for Refused {
    fn from(lost: super::link::Lost) -> Self {
        failed(lost.to_string())
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        failed(format!("tmux: {error}"))
    }
}

impl From<Refused> for ConnectError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Taken => Self::Failed("the tmux server belongs to another city".into()),
            Refused::Failed(why) => Self::Failed(why),
        }
    }
}
