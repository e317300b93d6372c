//! What is remembered of a session beside the script: which run, since when, its metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use gascity_actors::model::millis;
use gascity_actors::model::{AgentName, RunToken, SessionName};
use gascity_actors::ports::Note;
use serde::{Deserialize, Serialize};

use crate::control::files;

/// Where they are, in a city.
const DIR: &str = ".gc/runtime/sessions";

/// Behind the name of a session; no name holds a dot, so no other file looks like it.
const SUFFIX: &str = ".exec.json";

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Word of the provider: several scripts may serve one city.
    provider: String,
    pub(super) token: RunToken,
    pub(super) agent: AgentName,
    #[serde(with = "millis")]
    pub(super) started_at: DateTime<Utc>,
    pub(super) meta: BTreeMap<String, String>,
}

/// The providers of all records in a city.
pub(super) fn providers(root: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(root.join(DIR)).into_iter().flatten().flatten();
    let records = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(SUFFIX));
    let records = records
        .filter_map(|entry| serde_json::from_slice::<Record>(&fs::read(entry.path()).ok()?).ok());
    records.map(|record| record.provider).collect()
}

/// The records of one script in one city.
#[derive(Debug)]
pub(super) struct Records {
    dir: PathBuf,
    provider: String,
    /// Held while a record is changed.
    changing: Mutex<()>,
}

impl Records {
    pub(super) fn new(root: &Path, provider: String) -> Self {
        Self {
            dir: root.join(DIR),
            provider,
            changing: Mutex::default(),
        }
    }

    fn path(&self, name: &SessionName) -> PathBuf {
        self.dir.join(format!("{name}{SUFFIX}"))
    }

    /// A new run under this name.
    pub(super) fn begin(
        &self,
        name: &SessionName,
        token: RunToken,
        agent: AgentName,
        meta: BTreeMap<String, String>,
    ) -> io::Result<()> {
        files::create_private_dir(&self.dir)?;
        self.write(
            name,
            &Record {
                provider: self.provider.clone(),
                token,
                agent,
                started_at: Utc::now(),
                meta,
            },
        )
    }

    fn write(&self, name: &SessionName, record: &Record) -> io::Result<()> {
        files::replace(&self.path(name), &serde_json::to_vec(record)?)
    }

    /// The record of a session; `None` if there is none of this script's that can be read.
    pub(super) fn read(&self, name: &SessionName) -> io::Result<Option<Record>> {
        let text = match fs::read(self.path(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: Option<Record> = serde_json::from_slice(&text).ok();
        Ok(record.filter(|record| record.provider == self.provider))
    }

    /// Sets or removes one entry of the metadata.
    pub(super) fn change(
        &self,
        name: &SessionName,
        note: Note,
        value: Option<String>,
    ) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the session is gone");
        let mut record = self.read(name)?.ok_or_else(missing)?;
        match value {
            Some(value) => record.meta.insert(note.key().to_owned(), value),
            None => record.meta.remove(note.key()),
        };
        self.write(name, &record)
    }

    pub(super) fn remove(&self, name: &SessionName) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Every session of this script.
    pub(super) fn all(&self) -> io::Result<BTreeMap<SessionName, Record>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let mut all = BTreeMap::new();
        for entry in entries {
            let file = entry?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(SUFFIX));
            if let Some(name) = name.and_then(|name| SessionName::new(name).ok())
                && let Some(record) = self.read(&name)?
            {
                all.insert(name, record);
            }
        }
        Ok(all)
    }
}
