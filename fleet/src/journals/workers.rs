//! The files of the workers' journals in the directory of a lease, by their names. Knows nothing of their content.

use anyhow::Context;

use super::beginning::whole;
use crate::lease::{Store, sorted};

/// The desired state and the list of machines. A lease begins with it.
pub(crate) const POOL: &str = "pool.jsonl";

/// The operator adds this to the names of damaged files, so that the lease before counts.
const ASIDE: &str = ".damaged";

/// The name that a file had before an operator put it aside. `None` for other files.
pub(crate) fn put_aside(file: &str) -> Option<&str> {
    file.strip_suffix(ASIDE)
}

/// The file of a machine with which a lease begins.
pub(crate) fn journal(machine: &str) -> String {
    format!("machine-{machine}.json")
}

/// The file of a change, by its number, from 1, of a machine or of the pool.
pub(crate) fn changed(number: usize, of: &str) -> String {
    format!("worker-{number:06}-{of}.json")
}

/// The number of a change, and its machine or pool. `None` for another file.
pub(crate) fn change(file: &str) -> Option<(usize, &str)> {
    let (number, of) = file.strip_prefix("worker-")?.split_once('-')?;
    Some((number.parse().ok()?, of.strip_suffix(".json")?))
}

/// The machine of a file. `None` for another file.
pub(crate) fn machine_of(file: &str) -> Option<&str> {
    let begun = || file.strip_prefix("machine-")?.strip_suffix(".json");
    change(file).map(|(_, of)| of).filter(|of| *of != "pool").or_else(begun)
}

/// Whether a file is of such a journal, or was before an operator put it aside. Each lease that has begun above it has
/// the same content.
pub(super) fn owns(name: &str) -> bool {
    let name = put_aside(name).unwrap_or(name);
    let is_machine = name.strip_prefix("machine-").is_some_and(|rest| rest.ends_with(".json"));
    name == POOL || is_machine || change(name).is_some()
}

/// The last lease that has begun such journals.
pub(super) async fn counts(store: &dyn Store) -> anyhow::Result<Option<u64>> {
    for number in sorted(store).await.context("looking for the workers' journals")?.into_iter().rev() {
        let text = store.read(number, POOL).await?;
        if text.as_deref().map(whole).transpose()?.flatten().is_some() {
            return Ok(Some(number));
        }
    }
    Ok(None)
}
