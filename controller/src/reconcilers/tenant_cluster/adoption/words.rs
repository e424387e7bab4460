//! What is said of a person's word to adopt what is there, for as long as it stays.

use crate::decisions::is_to_adopt;
use crate::objects::{ADOPT, TenantCluster};

/// So many characters of a reason are said beside others': the whole of it stands where it comes from.
const MOST: usize = 120;

/// Why a person's word to adopt what is there stays where nobody could look whether VMs are newer; none where there is none.
pub(in crate::reconcilers::tenant_cluster) fn waits_for_a_look(cluster: &TenantCluster) -> Option<String> {
    waits_for(cluster, "nobody could look for the VMs of its control nodes")
}

/// The same for this reason.
pub(in crate::reconcilers::tenant_cluster) fn waits_for(cluster: &TenantCluster, why: &str) -> Option<String> {
    is_to_adopt(cluster).then(|| stays(why))
}

/// What is said, after why a person's word stays, if there is one.
pub(in crate::reconcilers::tenant_cluster) fn after_word(adopts: Option<&str>, words: &str) -> String {
    match adopts {
        Some(adopts) => format!("{adopts}; {words}"),
        None => words.to_owned(),
    }
}

/// That a person's word stays, how it is taken back, and why it stays: that may be long, and what is written is cut off at its end.
pub(super) fn stays(why: &str) -> String {
    format!(
        "what is there is to be adopted, and stays asked for until that is done, or until somebody takes the annotation {ADOPT} away. It is \
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
