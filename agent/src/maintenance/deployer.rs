//! Gives the deployer's users their rights in Kubernetes as long as this node has their keys. Removes the rights of a key that it had
//! before. Each key has its own binding, so nodes that do not have the new key yet do not interfere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use contract::deployer;
use contract::finding::Findings;

use super::job::Job;
use crate::cluster::addons;
use crate::cluster::kubernetes::api;
use crate::cluster::records::{DeployerRights, Records};
use crate::host::command::{Runner, SlowHost};
use crate::host::files;
use crate::node::context::NodeContext;

/// Records, until the VM restarts, the users whose rights were applied.
const SEEN: &str = "/run/kaas/deployer";

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let (root, address): (PathBuf, _) = (node.root().to_owned(), node.address()?);
    // The saved keys: the endpoint changes them while the agent runs.
    let saved = Records::new(&root).config()?.context("this node has no configuration")?;
    let keys = saved.control_plane()?.deployer_public_key.as_deref().map(deployer::public_keys).transpose()?;
    let current: Vec<String> = keys.iter().flatten().map(deployer::user).collect();
    if is_done(&root, &current)? {
        return Ok(None);
    }
    let host = SlowHost(node.control_plane()?.timeout_factor);
    Ok(Some(Box::new(move |_| {
        see_to(&root, &current, &|objects| api::apply(&host, address, objects).map(drop), &|user| {
            let delete = ["delete", "clusterrolebinding", user, "--ignore-not-found"];
            Ok(host.run(&api::kubectl(address).args(delete)).map(drop)?)
        })?;
        Ok(Findings::default())
    })))
}

fn is_done(root: &Path, current: &[String]) -> anyhow::Result<bool> {
    let seen = fs::read_to_string(files::below(root, SEEN)).is_ok_and(|seen| seen == current.join(","));
    let known = Records::new(root).entry::<DeployerRights>()?.unwrap_or_default();
    Ok(seen && known.users.iter().all(|user| current.contains(user)))
}

/// Removes rights before it gives any. A name is recorded before it gets rights, and removed from the record after it has lost
/// them. An interrupted run is repeated.
fn see_to(
    root: &Path,
    current: &[String],
    apply: &dyn Fn(&[serde_json::Value]) -> anyhow::Result<()>,
    delete: &dyn Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let records = Records::new(root);
    let known = records.entry::<DeployerRights>()?.unwrap_or_default();
    let former = known.users.iter().filter(|user| user.starts_with(deployer::USERS) && !current.contains(user));
    for user in former {
        delete(user).with_context(|| format!("taking the rights of the former deployer's user {user}"))?;
        log::info!("the deployer's key has changed: the user {user} no longer has rights");
    }
    records.update_entry(&DeployerRights { users: current.to_vec() })?;
    for user in current {
        apply(&addons::deployer_rights(user)).context("giving the deployer's user its rights")?;
    }
    files::write_atomically(&files::below(root, SEEN), current.join(",").as_bytes(), 0o644)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The requests to the cluster for a node with this key's user, and whether all succeeded.
    fn asked(root: &Path, current: &[&str], fails: bool) -> (Vec<String>, bool) {
        let asked = RefCell::new(Vec::new());
        let note = |what: String| {
            asked.borrow_mut().push(what);
            if fails { anyhow::bail!("the API is away") } else { Ok(()) }
        };
        let apply = |objects: &[serde_json::Value]| {
            note(format!("apply {} to {}", objects[0]["roleRef"]["name"], objects[0]["subjects"][0]["name"]))
        };
        let delete = |user: &str| note(format!("delete {user}"));
        let done = see_to(root, &owned(current), &apply, &delete).is_ok();
        (asked.into_inner(), done)
    }

    fn owned(users: &[&str]) -> Vec<String> {
        users.iter().map(|user| (*user).to_owned()).collect()
    }

    #[test]
    fn both_keys_have_rights_while_one_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let (one, two) = ("system:kaas:deployer:1", "system:kaas:deployer:2");
        let gives = |user: &str| format!("apply \"cluster-admin\" to \"{user}\"");
        assert_eq!(asked(root, &[one], false).0, [gives(one)]);
        assert_eq!(asked(root, &[one, two], false).0, [gives(one), gives(two)]);
        assert!(is_done(root, &owned(&[one, two])).unwrap() && !is_done(root, &owned(&[two])).unwrap());
        assert_eq!(asked(root, &[two], false).0, [format!("delete {one}"), gives(two)]);
    }

    #[test]
    fn changed_key_loses_its_rights_after_an_interruption() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let (one, two) = ("system:kaas:deployer:1", "system:kaas:deployer:2");
        let gives = |user: &str| format!("apply \"cluster-admin\" to \"{user}\"");
        assert!(!is_done(root, &[]).unwrap() && !is_done(root, &owned(&[one])).unwrap());
        assert_eq!(asked(root, &[one], true), (vec![gives(one)], false));
        assert!(!is_done(root, &owned(&[one])).unwrap(), "it is tried again");
        assert_eq!(asked(root, &[one], false), (vec![gives(one)], true));
        assert!(is_done(root, &owned(&[one])).unwrap());

        // The former user's rights are removed first. Until that succeeds, the new user gets none.
        assert!(!is_done(root, &owned(&[two])).unwrap());
        assert_eq!(asked(root, &[two], true), (vec![format!("delete {one}")], false));
        assert_eq!(asked(root, &[two], false), (vec![format!("delete {one}"), gives(two)], true));
        assert!(is_done(root, &owned(&[two])).unwrap());

        // After power-on it is checked once more.
        fs::remove_file(files::below(root, SEEN)).unwrap();
        assert!(!is_done(root, &owned(&[two])).unwrap());
        // The key was removed.
        assert_eq!(asked(root, &[], false), (vec![format!("delete {two}")], true));
        assert!(is_done(root, &[]).unwrap() && !is_done(root, &owned(&[two])).unwrap());
        assert_eq!(asked(root, &[], false), (Vec::new(), true));
    }

    #[test]
    fn only_users_of_deployers_lose_rights() {
        let directory = tempfile::tempdir().unwrap();
        let foreign = DeployerRights { users: vec!["kubeadm:cluster-admins".to_owned()] };
        Records::new(directory.path()).update_entry(&foreign).unwrap();
        assert_eq!(asked(directory.path(), &[], false), (Vec::new(), true));
    }
}
