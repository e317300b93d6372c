//! `gc init`: makes the directory of a new city. Never changes what is there.

mod ask;
mod copy;
mod template;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use self::template::{Runs, TEMPLATES};
use super::context::Context;
use super::error::io_hint;
use super::start::StartArgs;
use super::{CliError, CliResult, Code, Output};
use crate::control::home::CityDir;
use crate::model::{CityName, Command};

/// Make the directory of a new city
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  gc init my-city                               # two demo agents, nothing else needed
  gc init my-city --command \"my-agent --flag\"   # your own program
  gc init my-city --provider claude --start
  gc init another --from my-city                # a copy, without state and history
  gc init --list")]
pub(super) struct InitArgs {
    /// Directory of the city; created if missing [default: this one]
    path: Option<PathBuf>,
    /// What to start from (see --list) [default: demo]
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// Name of the city [default: that of the directory]
    #[arg(long)]
    name: Option<String>,
    /// Command its agents run, in place of the built-in demo program
    #[arg(long, value_name = "CMD")]
    command: Option<String>,
    /// Provider its agents run on, in place of the built-in demo program
    #[arg(long, value_name = "PROVIDER", conflicts_with = "command")]
    provider: Option<String>,
    /// City to take files and config from; all but its state
    #[arg(long, value_name = "DIR", conflicts_with_all = ["template", "command", "provider"])]
    from: Option<PathBuf>,
    /// Config to take
    #[arg(long, value_name = "FILE", conflicts_with_all = ["template", "command", "provider", "from"])]
    file: Option<PathBuf>,
    /// Start the city right away
    #[arg(long)]
    start: bool,
    /// Add what is missing to an existing city; nothing is overwritten
    #[arg(long)]
    force: bool,
    /// List the templates
    #[arg(long)]
    list: bool,
}

/// What was made, as `--json` shows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Created {
    name: String,
    path: PathBuf,
    /// None if there was a `city.toml`, or another was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'static str>,
    /// Where the config was taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<PathBuf>,
    created: Vec<String>,
}

/// Makes the city, or lists the templates.
///
/// # Errors
/// `conflict` if there is a city, `usage` for a bad name, `not_found` for an unknown template,
/// `failed` if the system refuses. Nothing is touched in the first three cases.
pub(super) fn run(args: &InitArgs, context: &Context) -> CliResult<u8> {
    let out = &context.out;
    if args.list {
        return list(out).map(|()| 0);
    }
    let args = &ask::complete(args, context)?;
    let made = create(args)?;
    if made.template.is_none()
        && made.from.is_none()
        && (args.template.is_some() || args.name.is_some())
    {
        out.note("note: city.toml was there and is kept as it is");
    }
    if args.start {
        if !out.json {
            out.line(done(&made))?;
        }
        return StartArgs::of(&made.path).run(context);
    }
    match out.json {
        true => out.document(&made)?,
        false => out.line(summary(&made, args.path.as_deref()))?,
    }
    Ok(0)
}

fn list(out: &Output) -> CliResult {
    if out.json {
        let items: Vec<_> = TEMPLATES
            .iter()
            .map(|template| json!({"name": template.name, "description": template.about}))
            .collect();
        return out.document(&json!({"total": items.len(), "items": items}));
    }
    out.line("NAME   CONTENT")?;
    TEMPLATES
        .iter()
        .try_for_each(|template| out.line(format!("{:5}  {}", template.name, template.about)))
}

/// The line that ends the command: what was done, and what to do next.
fn summary(made: &Created, typed: Option<&Path>) -> String {
    let done = done(made);
    let next = match typed {
        None => "gc start".to_owned(),
        Some(path) if path == Path::new(".") => "gc start".to_owned(),
        Some(path) => format!("{} && gc start", words(&["cd", &path.to_string_lossy()])),
    };
    format!("{done}    next: {next}")
}

fn done(made: &Created) -> String {
    if let Some(from) = &made.from {
        return format!("✓ created {} (from {})", made.name, from.display());
    }
    match (made.template, made.created.is_empty()) {
        (Some(template), _) => format!("✓ created {} (template {template})", made.name),
        (None, false) => format!("✓ completed {}: {}", made.name, made.created.join(", ")),
        (None, true) => format!("✓ {} is complete, nothing added", made.name),
    }
}

/// Checks everything, then makes what is missing.
fn create(args: &InitArgs) -> CliResult<Created> {
    let typed = args.path.as_deref().unwrap_or(Path::new("."));
    let template = match &args.template {
        Some(name) => template::find(name, typed)?,
        None => &TEMPLATES[0],
    };
    let runs = match (&args.command, &args.provider) {
        (Some(text), _) if text.trim().is_empty() => {
            return Err(CliError::new(Code::Usage, "--command is empty"));
        }
        (_, Some(text)) if text.trim().is_empty() => {
            return Err(CliError::new(Code::Usage, "--provider is empty"));
        }
        (Some(command), _) => Some(Runs::Command(command)),
        (None, Some(provider)) => Some(Runs::Provider(provider)),
        (None, None) => None,
    };
    let root = locate(typed)?;
    let city = CityDir::new(&root);
    // Also a link that leads nowhere is somebody's city.toml.
    let existed = fs::symlink_metadata(city.config()).is_ok();
    if city.config().is_dir() {
        let message = format!("{} is a directory", city.config().display());
        let hint = "move it away, or choose another directory for the city";
        return Err(CliError::new(Code::Conflict, message).hint(hint));
    }
    if existed && !args.force {
        return Err(conflict(&root, typed));
    }
    let name = match existed.then(|| configured_name(&city)).flatten() {
        Some(name) => name,
        None => name(args.name.as_deref(), typed, &root)?,
    };
    let (taken, text) = match (&args.from, &args.file) {
        _ if existed => (None, String::new()),
        (Some(dir), _) => {
            let file = CityDir::new(dir).config();
            apart(dir, &root)?;
            (Some(dir), copy::config(&file, &name)?)
        }
        (None, Some(file)) => (Some(file), copy::config(file, &name)?),
        (None, None) => (None, template.render(&name, runs)),
    };
    fs::create_dir_all(&root).map_err(|error| failed(&root, &error))?;
    let mut created = Vec::new();
    if !city.state_dir().is_dir() {
        city.create()?;
        created.push(".gc/".to_owned());
    }
    if !existed {
        if let Some(dir) = &args.from {
            created.extend(copy::rest(dir, &root)?);
        }
        write_config(&city, &text, typed)?;
        created.insert(0, "city.toml".to_owned());
    }
    Ok(Created {
        name: name.as_str().to_owned(),
        path: root,
        template: (!existed && taken.is_none()).then_some(template.name),
        from: taken.cloned(),
        created,
    })
}

/// A city is not copied into itself.
fn apart(from: &Path, root: &Path) -> CliResult {
    let from = fs::canonicalize(from).map_err(|error| failed(from, &error))?;
    match root.starts_with(&from) {
        true => {
            let message = format!("{} lies in {}", root.display(), from.display());
            Err(CliError::new(Code::Usage, message).hint("choose another directory for the city"))
        }
        false => Ok(()),
    }
}

/// The absolute path of the city, which need not exist yet.
fn locate(typed: &Path) -> CliResult<PathBuf> {
    match fs::canonicalize(typed) {
        Ok(root) if root.is_dir() => Ok(root),
        Ok(root) => {
            let message = format!("{} is not a directory", root.display());
            Err(CliError::new(Code::Conflict, message))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::path::absolute(typed).map_err(|error| failed(typed, &error))
        }
        Err(error) => Err(failed(typed, &error)),
    }
}

/// The name that was asked for, or that of the directory.
fn name(asked: Option<&str>, typed: &Path, root: &Path) -> CliResult<CityName> {
    if let Some(text) = asked {
        return CityName::new(text).map_err(|error| {
            CliError::new(Code::Usage, error.to_string()).hint(with_name(typed, text))
        });
    }
    let base = root.file_name().unwrap_or_default().to_string_lossy();
    CityName::new(&base).map_err(|error| {
        let message = "the city cannot be named after its directory";
        CliError::new(Code::Usage, message)
            .cause(error)
            .hint(with_name(typed, &base))
    })
}

/// The name an existing `city.toml` gives to its city.
fn configured_name(city: &CityDir) -> Option<CityName> {
    let config: toml::Table = fs::read_to_string(city.config()).ok()?.parse().ok()?;
    CityName::new(config.get("workspace")?.get("name")?.as_str()?).ok()
}

/// The command that would have worked: the nearest name the grammar allows.
fn with_name(typed: &Path, text: &str) -> String {
    let fitting: String = text
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => c,
            _ => '-',
        })
        .take(64)
        .collect();
    let fitting = fitting.trim_matches(['-', '.', '_']);
    let fitting = if fitting.is_empty() {
        "my-city"
    } else {
        fitting
    };
    words(&["gc", "init", &typed.to_string_lossy(), "--name", fitting])
}

fn conflict(root: &Path, typed: &Path) -> CliError {
    let message = format!("{} is a city already", root.display());
    let hint = words(&["gc", "init", &typed.to_string_lossy(), "--force"]);
    CliError::new(Code::Conflict, message)
        .cause("its city.toml is kept as it is; --force adds only what is missing")
        .hint(hint)
}

fn write_config(city: &CityDir, text: &str, typed: &Path) -> CliResult {
    let path = city.config();
    let mut file = match fs::File::create_new(&path) {
        Ok(file) => file,
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(conflict(city.root(), typed));
        }
        Err(error) => return Err(failed(&path, &error)),
    };
    file.write_all(text.as_bytes()).map_err(|error| {
        let _ = fs::remove_file(&path); // half a config would be a city; the first error counts
        failed(&path, &error)
    })
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    let failure = CliError::new(Code::Failed, format!("{}: {error}", path.display()));
    CliError {
        hint: io_hint(path, error),
        ..failure
    }
}

/// Words as a shell reads them.
fn words(words: &[&str]) -> String {
    Command::Words(words.iter().map(|word| (*word).to_owned()).collect()).to_string()
}

#[cfg(test)]
mod tests;
