//! One file with all that somebody needs who is to help: no value of any variable is in it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code, io_hint};
use crate::config;
use crate::control::home::CityDir;

/// The end of a log that is taken along.
const MOST: u64 = 4 << 20;

pub(super) fn write(context: &Context, file: &Path, report: &Value) -> CliResult {
    let failed = |error: io::Error| {
        let mut failure = CliError::new(Code::Failed, format!("{}: {error}", file.display()));
        failure.hint = io_hint(file, &error);
        failure
    };
    let mut parcel = tar::Builder::new(File::create_new(file).map_err(failed)?);
    for (name, content) in contents(context, report)? {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(chrono::Utc::now().timestamp()).unwrap_or(0));
        parcel
            .append_data(&mut header, Path::new("gc-doctor").join(name), &*content)
            .map_err(failed)?;
    }
    parcel
        .into_inner()
        .and_then(|file| file.sync_all())
        .map_err(failed)
}

fn contents(context: &Context, report: &Value) -> CliResult<Vec<(PathBuf, Vec<u8>)>> {
    let home = context.home()?;
    let mut all = vec![("doctor.json".into(), pretty(report))];
    if let Ok(Some(mut client)) = context.supervisor() {
        for (name, op) in [("status.json", "status"), ("tree.json", "actors.tree")] {
            if let Ok(answer) = client.call(op, json!({})) {
                all.push((name.into(), pretty(&answer)));
            }
        }
    }
    for log in [home.log(), home.out(), home.events()] {
        all.extend(end_of(&log).map(|text| (named("home", &log), text)));
    }
    for config in [home.config(), home.registry()] {
        let text = fs::read_to_string(&config).ok();
        let text = text.map(|text| config::masked(&text).into_bytes());
        all.extend(text.map(|text| (named("home", &config), text)));
    }
    for city in context.registered().unwrap_or_default() {
        let dir = CityDir::new(&city.path);
        let below = format!("cities/{}", city.name);
        if let Ok(text) = fs::read_to_string(dir.config()) {
            let masked = config::masked(&text).into_bytes();
            all.push((named(&below, &dir.config()), masked));
        }
        let events = dir.state_dir().join("events.jsonl");
        for log in [dir.log(), events] {
            all.extend(end_of(&log).map(|text| (named(&below, &log), text)));
        }
    }
    Ok(all)
}

fn named(below: &str, file: &Path) -> PathBuf {
    Path::new(below).join(file.file_name().unwrap_or_default())
}

fn pretty(value: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

fn end_of(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MOST))).ok()?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text).ok()?;
    Some(text)
}
