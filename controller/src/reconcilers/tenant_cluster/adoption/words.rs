//! The messages about the operator's request to adopt, while it is open.

use crate::decisions::is_to_adopt;
use crate::objects::{ADOPT, TenantCluster};

/// The number of characters of a reason that is quoted. Its source has the whole text.
const MOST: usize = 120;

/// Why the operator's request stays open while VMs cannot be listed. `None` without a request.
pub(in crate::reconcilers::tenant_cluster) fn waits_for_a_look(cluster: &TenantCluster) -> Option<String> {
    waits_for(cluster, "the VMs of its control-plane nodes could not be listed")
}

/// As `waits_for_a_look`, for this reason.
pub(in crate::reconcilers::tenant_cluster) fn waits_for(cluster: &TenantCluster, why: &str) -> Option<String> {
    is_to_adopt(cluster).then(|| stays(why))
}

/// A message, after why the operator's request is still open, if there is one.
pub(in crate::reconcilers::tenant_cluster) fn after_word(adopts: Option<&str>, words: &str) -> String {
    match adopts {
        Some(adopts) => format!("{adopts}; {words}"),
        None => words.to_owned(),
    }
}

/// Why a request is still open, and how to withdraw it. The reason is last, because the end of a long message is cut.
pub(super) fn stays(why: &str) -> String {
    format!(
        "the adoption was requested, and stays so until it is done, or until the annotation {ADOPT} is removed. It is \
         not done yet: {why}"
    )
}

/// The beginning of a reason.
pub(super) fn shortened(why: &str) -> String {
    match why.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &why[..end]),
        None => why.to_owned(),
    }
}
