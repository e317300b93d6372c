//! The files of orders: checked, so that a broken one is known, and part of the revision. One bad
//! file never stops the load.

use std::path::{Path, PathBuf};

use super::compose::{self, Composed};
use super::fields::Fields;
use super::files::Layer;
use super::keys::ORDER_FILE;
use super::problem::{Problem, Problems};
use super::rigs::Rigs;
use super::sources::Sources;

/// Keys that belong to some gates only.
const GATED: [(&str, &[&str]); 9] = [
    ("interval", &["cooldown", "condition", "event"]),
    ("schedule", &["cron"]),
    ("timezone", &["cron"]),
    ("catch_up", &["cron"]),
    ("check", &["condition"]),
    ("check_timeout", &["condition"]),
    ("on", &["event"]),
    ("subject", &["event"]),
    ("start_from", &["event"]),
];

/// Reads all formula and order directories and checks every order.
pub(super) fn check(
    composed: &mut Composed,
    rigs: &Rigs,
    sources: &mut Sources,
    problems: &mut Problems,
) {
    let root = problems.files.root().to_owned();
    let mut formulas = Vec::new();
    let mut orders = Vec::new();
    for index in composed.all_packs() {
        let Some(pack) = composed.packs.get(index) else {
            continue;
        };
        formulas.push(directory(&pack.fields, &pack.dir, problems));
        orders.push(pack.dir.join("orders"));
    }
    formulas.push(directory(&composed.city, &root, problems));
    orders.push(root.join("orders"));
    for rig in &composed.rigs {
        let known = rig
            .fields
            .text("name")
            .is_some_and(|name| rigs.get(name).is_some());
        if let Some((text, span)) = rig.fields.placed_text("formulas_dir").filter(|_| known) {
            formulas.push(problems.files.resolve(text, &span));
        }
    }
    orders.extend(formulas.iter().map(|dir| dir.join("orders")));
    for dir in formulas {
        read_tree(&dir, sources, problems);
    }
    orders.sort();
    orders.dedup();
    let mut names = Vec::new();
    for dir in orders {
        for file in read_tree(&dir, sources, problems) {
            let since = problems.count();
            check_order(&dir.join(&file), sources, problems);
            problems.soften(since);
            names.extend(order_name(&file));
        }
    }
    check_skips(&composed.city, &names, problems);
}

/// `[formulas] dir`, or the habitual place.
fn directory(fields: &Fields, home: &Path, problems: &Problems) -> PathBuf {
    match fields
        .table("formulas")
        .and_then(|table| table.placed_text("dir"))
    {
        Some((text, span)) => problems.files.resolve(text, &span),
        None => home.join("formulas"),
    }
}

/// The order files of a directory, relative; a directory that is not there has none.
fn read_tree(dir: &Path, sources: &mut Sources, problems: &mut Problems) -> Vec<PathBuf> {
    if !dir.exists() {
        sources.awaited(dir);
        return Vec::new();
    }
    match sources.tree(dir) {
        Ok(tree) => {
            let files = tree.files.iter().filter(|file| order_name(file).is_some());
            files.cloned().collect()
        }
        Err(error) => {
            let message = format!("{} {}", dir.display(), error.why);
            problems.push(Problem::error(error.code, 0..0, "formulas.dir", message));
            Vec::new()
        }
    }
}

/// `<name>.toml` and `<name>/order.toml` are orders.
fn order_name(file: &Path) -> Option<String> {
    let parts: Vec<String> = file
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    match &parts[..] {
        [file] => file.strip_suffix(".toml").map(str::to_owned),
        [name, file] if file == "order.toml" => Some(name.clone()),
        _ => None,
    }
}

fn check_order(path: &Path, sources: &mut Sources, problems: &mut Problems) {
    let bytes = match sources.bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("{} {}", path.display(), error.why);
            problems.push(Problem::error(error.code, 0..0, "", message));
            return;
        }
    };
    let file = compose::file(path, &bytes, &ORDER_FILE, Layer::City, problems);
    let Some(order) = file.as_ref().and_then(|file| file.table("order")) else {
        return;
    };
    let header = file
        .as_ref()
        .and_then(|file| file.span("order"))
        .unwrap_or(0..0);
    match (order.has("formula"), order.has("exec")) {
        (true, true) => {
            let keys = ["formula", "exec"].map(|key| (key, order.span(key)));
            let message = "an order has either `formula` or `exec`";
            problems.push(Problem::conflict("order", keys, message));
        }
        (false, false) => problems.push(
            Problem::error(
                "missing-key",
                header.clone(),
                "order",
                "the order has nothing to do",
            )
            .label("no `formula`, no `exec`"),
        ),
        _ => {}
    }
    let Some(gate) = order.text("gate") else {
        return;
    };
    for (key, gates) in GATED {
        if order.has(key) && !gates.contains(&gate) {
            let keys = ["gate", key].map(|key| (key, order.span(key)));
            let message = format!("`{key}` does not go with `gate = {gate:?}`");
            problems.push(Problem::conflict("order", keys, message));
        }
    }
    let needed = match gate {
        "cooldown" => "interval",
        "cron" => "schedule",
        "condition" => "check",
        "event" => "on",
        _ => return,
    };
    if !order.has(needed) {
        let message = format!("`gate = {gate:?}` needs `{needed}`");
        problems.push(
            Problem::error("missing-key", header, format!("order.{needed}"), message)
                .label(format!("no `{needed}`")),
        );
    }
}

/// An order that is skipped and not there is probably misspelt.
fn check_skips(city: &Fields, names: &[String], problems: &mut Problems) {
    let Some(orders) = city.table("orders") else {
        return;
    };
    for (i, (name, span)) in orders.placed("skip").iter().enumerate() {
        let bare = name.split(":rig:").next().unwrap_or(name);
        if !names.iter().any(|known| known == bare) {
            let message = format!("there is no order {name:?} to skip");
            problems.push(
                Problem::error(
                    "unknown-ref",
                    span.clone(),
                    format!("orders.skip[{i}]"),
                    message,
                )
                .warning()
                .label("unknown order"),
            );
        }
    }
}
