//! Users and enabled units from the image's files: runs systemd-sysusers and `systemctl preset-all` on a small tree
//! with their input files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::BuildContext;
use crate::cache::{Key, Stage};
use crate::tree::{Content, Kind, Node, Tree};

/// The databases of users and groups.
const DATABASES: [&str; 4] = ["etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"];
/// Input files of the two programs.
const READ: [&str; 4] =
    ["etc/systemd", "usr/lib/systemd/system", "usr/lib/systemd/system-preset", "usr/lib/sysusers.d"];

/// Applies presets and declared users to a tree that has all units and files.
pub fn apply(tree: &mut Tree, context: &BuildContext<'_>) -> Result<()> {
    let &BuildContext { tools, cache, progress, epoch } = context;
    let mut small = tree.clone();
    small.retain(|path, node| {
        let above = |wanted: &&str| Path::new(wanted).starts_with(path);
        let read =
            READ.iter().any(|wanted| path.starts_with(wanted)) || DATABASES.iter().any(|name| path == Path::new(name));
        read || node.kind == Kind::Directory && READ.iter().chain(&DATABASES).any(above)
    });
    let key = small.add_to_key(Key::of(Stage::SETTINGS), cache)?.text("epoch", epoch.to_string());
    let key = key.key("tools", tools.key()).finish();
    let result = cache.stage(&key, progress, |directory| {
        small.write_directory(directory)?;
        let run = |program: &str| tools.run(program).writes_at(directory, "/image").tool();
        let epoch = epoch.to_string();
        run("systemd-sysusers").env("SOURCE_DATE_EPOCH", epoch).arg("--root=/image").run(progress)?;
        run("systemctl").args(["--root=/image", "preset-all", "--preset-mode=full"]).run(progress)
    })?;
    for name in DATABASES {
        let old = tree.get(name).with_context(|| format!("the packages brought no {name}"))?.clone();
        let content = fs::read(result.join(name)).with_context(|| format!("reading the new {name}"))?;
        tree.insert(Path::new(name), Node { kind: Kind::File(Content::Bytes(content)), ..old });
    }
    // Enabled units are symbolic links here. Units that packages enabled and presets do not enable are removed.
    tree.remove(Path::new("etc/systemd/system"));
    tree.host_directory(&result.join("etc/systemd/system"), &PathBuf::from("etc/systemd/system"))
}
