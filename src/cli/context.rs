//! What every command has at hand: how to speak, where the supervisor lives, which city is meant.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::discover::{Access, Clues, discover, is_city};
use super::error::{CliError, CliResult, Code};
use super::globals::Globals;
use super::output::Output;
use crate::control::client::{Client, ClientError, Patience};
use crate::control::home::{CityDir, Env, Home};
use crate::control::lock;
use crate::control::registry::Registry;
use crate::ports::CityEntry;

/// How long a killed process may take to let go of what it held.
const DYING_LIMIT: Duration = Duration::from_millis(500);

/// The surroundings of one command.
#[derive(Debug, Clone)]
pub(super) struct Context {
    /// How to speak.
    pub(super) out: Output,
    /// The global flags.
    pub(super) globals: Globals,
}

/// Who runs a city.
#[derive(Debug)]
pub(super) enum Seat {
    /// A standalone controller of this city.
    Standalone(Client),
    /// The machine's supervisor, which may or may not know the city.
    Supervisor(Client),
    /// Nobody answers.
    Nobody,
}

impl Context {
    /// The surroundings under these flags.
    #[must_use]
    pub(super) fn new(globals: Globals) -> Self {
        let out = globals.output();
        Self { out, globals }
    }

    /// The supervisor's directories; nothing is created.
    ///
    /// # Errors
    /// If nothing says where they are.
    pub(super) fn home(&self) -> CliResult<Home> {
        Ok(Home::resolve(
            self.globals.home.as_deref(),
            &Env::from_process(),
        )?)
    }

    /// The registry of cities.
    ///
    /// # Errors
    /// As [`Self::home`].
    pub(super) fn registry(&self) -> CliResult<Registry> {
        Ok(Registry::new(self.home()?.registry()))
    }

    /// The cities in the registry file, sorted by name.
    ///
    /// # Errors
    /// If the file is not a registry.
    pub(super) fn registered(&self) -> CliResult<Vec<CityEntry>> {
        let mut cities = self.registry()?.read()?.registered.cities;
        cities.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(cities)
    }

    /// The root of the city the command is about.
    ///
    /// # Errors
    /// As [`discover`].
    pub(super) fn city(&self, positional: Option<&str>, access: Access) -> CliResult<PathBuf> {
        let cwd = std::env::current_dir()?;
        let env = std::env::var_os("GC_CITY").map(PathBuf::from);
        let clues = Clues {
            flag: self.globals.city.as_deref(),
            positional,
            env: env.as_deref(),
            cwd: &cwd,
            access,
        };
        let found = discover(&clues, || self.registered())?;
        if let Some(note) = found.note {
            self.out.note(note);
        }
        Ok(found.root)
    }

    /// The same, for commands that need its `city.toml`.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is none.
    pub(super) fn existing_city(
        &self,
        positional: Option<&str>,
        access: Access,
    ) -> CliResult<PathBuf> {
        let root = self.city(positional, access)?;
        if is_city(&root) {
            return Ok(root);
        }
        let message = format!("{} has no city.toml", root.display());
        Err(CliError::new(Code::NotFound, message).hint(format!("gc init {}", root.display())))
    }

    /// A connection to the supervisor, if one runs.
    ///
    /// # Errors
    /// If one is there and cannot be talked to.
    pub(super) fn supervisor(&self) -> CliResult<Option<Client>> {
        let home = self.home()?;
        self.reach(&home.client_sockets(), &home.log(), &home.runtime_lock())
    }

    /// A connection to the supervisor.
    ///
    /// # Errors
    /// [`Code::NotRunning`] when there is none.
    pub(super) fn running_supervisor(&self) -> CliResult<Client> {
        self.supervisor()?
            .ok_or_else(|| ClientError::NotRunning.into())
    }

    /// A connection to the standalone controller of a city, if one runs.
    ///
    /// # Errors
    /// If one is there and cannot be talked to.
    pub(super) fn standalone(&self, root: &Path) -> CliResult<Option<Client>> {
        let city = CityDir::new(root);
        self.reach(&[city.socket()], &city.log(), &city.lock())
    }

    /// Where whoever runs the city may be reached, the likeliest first.
    ///
    /// # Errors
    /// As [`Self::home`].
    pub(super) fn controller_sockets(&self, root: &Path) -> CliResult<Vec<PathBuf>> {
        let mut sockets = vec![CityDir::new(root).socket()];
        sockets.extend(self.home()?.client_sockets());
        Ok(sockets)
    }

    /// A connection to whoever runs the city, or would.
    ///
    /// # Errors
    /// If somebody is there and cannot be talked to.
    pub(super) fn seat(&self, root: &Path) -> CliResult<Seat> {
        if let Some(client) = self.standalone(root)? {
            return Ok(Seat::Standalone(client));
        }
        Ok(match self.supervisor()? {
            Some(client) => Seat::Supervisor(client),
            None => Seat::Nobody,
        })
    }

    /// Asks before `what` is done to several things at once, unless `-y` has answered.
    ///
    /// # Errors
    /// [`Code::Usage`] if nobody can be asked, [`Code::Failed`] if the answer is no. Nothing is
    /// done then.
    pub(super) fn confirm(&self, what: &str) -> CliResult {
        if self.globals.yes {
            return Ok(());
        }
        let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
        if self.globals.no_input || !stdin.is_terminal() || !stderr.is_terminal() {
            let message = format!("{what}: nobody can be asked; nothing was done");
            return Err(CliError::new(Code::Usage, message).hint("add -y"));
        }
        write!(stderr.lock(), "{what}? [y/N] ")?;
        let mut answer = String::new();
        stdin.read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CliError::new(Code::Failed, "nothing was done")),
        }
    }

    fn reach(&self, sockets: &[PathBuf], log: &Path, held: &Path) -> CliResult<Option<Client>> {
        match Client::connect(sockets, Patience::default()) {
            Ok(client) => Ok(Some(client)),
            Err(ClientError::NotRunning) => Ok(None),
            Err(error @ ClientError::NoAnswer) => {
                Err(CliError::from(error).hint(format!("see {}", log.display())))
            }
            // One that was just killed hangs up like one that refuses us, but lets go of its lock.
            Err(ClientError::Denied | ClientError::Io(_))
                if lock::wait_free(held, DYING_LIMIT).unwrap_or(false) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads an answer of the supervisor.
///
/// # Errors
/// If it is not what this version expects.
pub(super) fn read<T: DeserializeOwned>(answer: Value) -> CliResult<T> {
    serde_json::from_value(answer).map_err(|error| {
        CliError::new(Code::Failed, "unexpected answer from the supervisor").cause(error)
    })
}
