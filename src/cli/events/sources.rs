//! The logs that events come from: one, or those of all cities and of the machine itself.

use std::collections::BTreeMap;
use std::str::FromStr;

use tokio::sync::mpsc;

use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code};
use crate::control::home::CityDir;
use crate::events::EventLog;
use crate::model::Event;

/// The machine's own log among those of the cities.
const MACHINE: &str = "_machine";

/// Where to go on: behind a number, or behind one of each city.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum After {
    Seq(u64),
    Each(BTreeMap<String, u64>),
}

impl FromStr for After {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(seq) = text.parse() {
            return Ok(Self::Seq(seq));
        }
        let one = |part: &str| {
            let (city, seq) = part.rsplit_once(':')?;
            Some((city.to_owned(), seq.parse().ok()?))
        };
        let each: Option<BTreeMap<String, u64>> = text.split(',').map(one).collect();
        let expected = || "expected a number, or CITY:NUMBER,... with --all".to_owned();
        each.map(Self::Each).ok_or_else(expected)
    }
}

/// One log.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The city; empty where its config cannot be read.
    pub(super) name: String,
    pub(super) log: EventLog,
}

/// An event and the place of its log.
pub(super) type Told = (usize, Event);

/// The logs that are read.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// Sorted by name.
    pub(super) all: Vec<Source>,
    /// Events name their city, and places are those of all logs at once.
    pub(super) several: bool,
}

impl Sources {
    pub(super) fn one(name: String, log: EventLog) -> Self {
        Self {
            all: vec![Source { name, log }],
            several: false,
        }
    }

    /// The logs of all cities the supervisor knows, and its own.
    ///
    /// # Errors
    /// If no supervisor runs.
    pub(super) fn of_machine(context: &Context) -> CliResult<Self> {
        context.running_supervisor()?;
        let known = crate::cli::cities::known(context)?;
        let city = |city: crate::model::CityInfo| Source {
            name: city.name.to_string(),
            log: EventLog::new(CityDir::new(&city.path).state_dir()),
        };
        let mut all: Vec<Source> = known.cities.into_iter().map(city).collect();
        all.push(Source {
            name: MACHINE.to_owned(),
            log: EventLog::new(context.home()?.dir()),
        });
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { all, several: true })
    }

    /// The place in each log that `after` stands for. A log it does not name goes on from now.
    ///
    /// # Errors
    /// [`Code::Usage`] if it is no place in these logs.
    pub(super) fn places(&self, after: &After) -> CliResult<Vec<u64>> {
        match (after, self.several) {
            (After::Seq(seq), false) => Ok(vec![*seq]),
            (After::Seq(0), true) => Ok(vec![0; self.all.len()]),
            (After::Each(each), true) => {
                let place = |source: &Source| match each.get(&source.name) {
                    Some(seq) => Ok(*seq),
                    None => Ok(source.log.last_seq()?),
                };
                self.all.iter().map(place).collect()
            }
            (After::Seq(_), true) => {
                let error = CliError::new(Code::Usage, "--all has a number for each city");
                Err(error.hint("gc events --all --seq shows the form"))
            }
            (After::Each(_), false) => {
                let error = CliError::new(Code::Usage, "numbers of cities need --all");
                Err(error.hint("gc events --all --after CITY:NUMBER,..."))
            }
        }
    }

    /// The newest place in each log.
    ///
    /// # Errors
    /// If a log cannot be read.
    pub(super) fn newest(&self) -> CliResult<Vec<u64>> {
        let seq = |source: &Source| Ok(source.log.last_seq()?);
        self.all.iter().map(seq).collect()
    }

    /// The places in the form [`After`] reads.
    pub(super) fn cursor(&self, places: &[u64]) -> String {
        let named = self.all.iter().zip(places);
        let parts = named.map(|(source, seq)| format!("{}:{seq}", source.name));
        parts.collect::<Vec<_>>().join(",")
    }

    /// Events behind these places and those to come, as they come; in order within each log. Ends
    /// only with an error.
    pub(super) fn follow(
        &self,
        places: &[u64],
    ) -> CliResult<mpsc::Receiver<std::io::Result<Vec<Told>>>> {
        let (sender, events) = mpsc::channel(16);
        for (index, (source, after)) in self.all.iter().zip(places).enumerate() {
            let mut follower = source.log.follow(*after)?;
            let sender = sender.clone();
            tokio::spawn(async move {
                loop {
                    let news = follower.next().await;
                    let ends = news.is_err();
                    let news = news.map(|all| all.into_iter().map(|e| (index, e)).collect());
                    if sender.send(news).await.is_err() || ends {
                        return;
                    }
                }
            });
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_a_number_or_one_of_each_city() {
        let read = |text: &str| text.parse::<After>();
        assert_eq!(read("12"), Ok(After::Seq(12)));
        let each = [("_machine".to_owned(), 3), ("town".to_owned(), 7)];
        assert_eq!(read("_machine:3,town:7"), Ok(After::Each(each.into())));
        for odd in ["", "town", "town:x", "town:1,", "-1"] {
            assert!(read(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn a_log_that_is_not_named_goes_on_from_now() {
        let dir = tempfile::tempdir().unwrap();
        let source = |name: &str| {
            let dir = dir.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            let event = crate::model::EventDraft::new("x.y", "").record(5, chrono::Utc::now());
            let line = serde_json::to_string(&event).unwrap() + "\n";
            std::fs::write(dir.join("events.jsonl"), line).unwrap();
            Source {
                name: name.to_owned(),
                log: EventLog::new(dir),
            }
        };
        let sources = Sources {
            all: vec![source("a"), source("b")],
            several: true,
        };
        let places = |text: &str| sources.places(&text.parse().unwrap());
        assert_eq!(places("b:2,gone:9").unwrap(), [5, 2]);
        assert_eq!(sources.cursor(&[5, 2]), "a:5,b:2");
        assert_eq!(places("0").unwrap(), [0, 0]);
        assert_eq!(places("3").unwrap_err().code, Code::Usage);
    }
}
