//! Takes a rig out of `city.toml`.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::{EditError, Edited, Place, Target, edit, same, splice};
use crate::config::source::Bytes;
use crate::config::{Loader, Resolved};

/// Removes the `[[rigs]]` of that name, with its overrides, from the `city.toml` of the city at
/// `root`. Agents that its packs made go with it; the directory and what lies in it stay.
///
/// # Errors
/// [`EditError`]; the file is then unchanged. [`EditError::Refused`] names what would miss the rig:
/// a patch, a dependency. [`EditError::InUse`] if agents are written as members of it: without the
/// rig they would be agents of a directory of the city.
pub fn remove_rig(root: &Path, name: &str) -> Result<Edited, EditError> {
    let root = fs::canonicalize(root)?;
    edit(&root, |text, before, resolved| {
        let place = Place::find(before, &Target::Rig(name.to_owned()), resolved)?;
        let new = splice::remove(text, place).ok_or(EditError::Layout)?;
        let Place::Item(keys, index) = place else {
            return Err(EditError::Layout);
        };
        if !same(&without(before, keys[0], index, &new), &new) {
            return Err(EditError::Layout);
        }
        let bytes = Bytes {
            bytes: new.clone().into_bytes(),
            executable: false,
        };
        let left = Resolved::of(Loader::new(&root).check(&root, &bytes));
        let of = |agent: &String| {
            agent
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        let agents: Vec<String> = left.agents().into_iter().filter(of).collect();
        match agents.is_empty() || left.result.is_err() {
            true => Ok(Some(new)),
            false => Err(EditError::InUse {
                name: name.to_owned(),
                agents,
            }),
        }
    })
}

/// The file without one of its rigs; the last takes the whole list with it if `text` has none.
fn without(before: &Table, key: &str, index: usize, text: &str) -> Table {
    let mut table = before.clone();
    if let Some(list) = table.get_mut(key).and_then(Value::as_array_mut) {
        list.remove(index);
        if list.is_empty() && !super::after_has(text, key) {
            table.remove(key);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    const TEXT: &str = "\
# Mine.
[workspace] # here
name = 'demo'

# --- rigs ---
[[rigs]] # the first
name = 'r'
path = '/' # all of it
# its agents
includes = ['pack']
[[rigs.overrides]]
agent = 'p'
nudge = 'go'

# the other
[[rigs]]
name = 's'
path = '/'

[daemon]
max_restarts = 3
";

    fn city(text: &str) -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("demo");
        fs::create_dir_all(root.join("pack")).unwrap();
        let pack = "[pack]\nname = 'pack'\nschema = 1\n[[agent]]\nname = 'p'\nscope = 'rig'\nstart_command = 'x'\n";
        fs::write(root.join("pack/pack.toml"), pack).unwrap();
        fs::write(root.join("city.toml"), text).unwrap();
        (dir, root)
    }

    fn removed(text: &str, rig: &str) -> Result<String, EditError> {
        let (_dir, root) = city(text);
        let result = remove_rig(&root, rig);
        let now = fs::read_to_string(root.join("city.toml")).unwrap();
        match result {
            Ok(edited) => {
                assert_eq!(edited, Edited::Changed);
                Ok(now)
            }
            Err(error) => {
                assert_eq!(now, text, "{error}");
                Err(error)
            }
        }
    }

    #[test]
    fn a_rig_goes_with_its_overrides_and_all_else_stays_as_written() {
        let start = TEXT.find("[[rigs]] # the first").unwrap();
        let end = TEXT.find("\n# the other").unwrap();
        let expected = [&TEXT[..start], &TEXT[end..]].concat();
        assert_eq!(removed(TEXT, "r").unwrap(), expected);
        let expected = TEXT.replace("[[rigs]]\nname = 's'\npath = '/'\n", "");
        assert_eq!(removed(TEXT, "s").unwrap(), expected);
        let windows = TEXT.replace('\n', "\r\n");
        assert_eq!(
            removed(&windows, "s").unwrap(),
            expected.replace('\n', "\r\n")
        );
    }

    #[test]
    fn an_added_rig_leaves_no_trace() {
        for text in ["", "[workspace]\nname = 'x'\n", "# only words\n"] {
            let (_dir, root) = city(text);
            let pairs = [("name", "n".into()), ("path", "/".into())];
            assert_eq!(
                super::super::append(&root, "rigs", &pairs).unwrap(),
                Edited::Changed
            );
            assert_eq!(remove_rig(&root, "n").unwrap(), Edited::Changed);
            assert_eq!(fs::read_to_string(root.join("city.toml")).unwrap(), text);
        }
    }

    #[test]
    fn lists_in_one_line_lose_one_item() {
        let text = "rigs = [{ name = 'r', path = '/' }, { name = 's', path = '/' }] # both\n";
        let of = |rig| removed(text, rig).unwrap();
        assert_eq!(of("r"), "rigs = [{ name = 's', path = '/' }] # both\n");
        assert_eq!(of("s"), "rigs = [{ name = 'r', path = '/' }] # both\n");
        let last = removed("rigs = [{ name = 'r', path = '/' }]\n", "r");
        assert_eq!(last.unwrap(), "rigs = []\n");
    }

    #[test]
    fn what_would_miss_the_rig_is_named_and_nothing_is_changed() {
        for (more, said) in [
            ("[[patches.rigs]]\nname = 'r'\nsuspended = true\n", "`r`"),
            (
                "[[patches.agent]]\ndir = 'r'\nname = 'p'\nnudge = 'x'\n",
                "r/p",
            ),
            (
                "[[agent]]\nname = 'x'\nstart_command = 'x'\ndepends_on = ['r/p']\n",
                "r/p",
            ),
        ] {
            let error = removed(&format!("{TEXT}{more}"), "r").unwrap_err();
            assert!(matches!(error, EditError::Refused(_)), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        let member = "[[agent]]\nname = 'x'\ndir = 'r'\nstart_command = 'x'\n";
        let error = removed(&format!("{TEXT}{member}"), "r").unwrap_err();
        assert_eq!(error.to_string(), "agents belong to the rig `r`: r/x");
        let error = removed(TEXT, "q").unwrap_err();
        assert!(matches!(error, EditError::UnknownRig { .. }), "{error}");
    }

    #[test]
    fn a_rig_that_is_written_in_pieces_is_left_to_its_writer() {
        let text = "[[rigs]]\nname = 'r'\npath = '/'\nincludes = ['pack']\n[daemon]\nmax_restarts = 3\n[[rigs.overrides]]\nagent = 'p'\n";
        let error = removed(text, "r").unwrap_err();
        assert!(matches!(error, EditError::Layout), "{error}");
    }
}
