//! The confirmation of a cluster's removal: its name, typed.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster_file::Site;
use crate::confirm::{ask, by_name};

#[derive(Default)]
pub struct DeletionConfirmation {
    pub cluster: String,
    /// The place of the cluster, as text.
    pub place: String,
    /// The place of its journal, as text.
    pub journal: String,
    /// Whether its data disks are removed too.
    pub disks: bool,
    /// One line for each data disk to remove that no VM of the cluster holds.
    pub left: Vec<String>,
    /// One line for each disk that is missing and is dropped from the journal.
    pub doubtful: Vec<String>,
    /// One line for each disk that an earlier run was to remove and that a VM holds now.
    pub held: Vec<String>,
    /// One line for each copy of a data disk. Copies remain.
    pub copies: Vec<String>,
    /// One line for each VM that is removed in addition.
    pub also: Vec<String>,
    /// The line on its tenant clusters. `None` if it has none.
    pub tenants: Option<String>,
}

/// The output of a dry run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPlan {
    /// Always true.
    dry_run: bool,
    cluster: String,
    /// The place of the cluster, whose VMs would be removed.
    place: String,
    /// The place of its journal, which would be removed.
    journal: String,
    /// Whether its data disks would be removed.
    data_disks: bool,
    /// Other VMs and disks, copies and tenant clusters, a line each: what happens to them.
    others: Vec<String>,
}

impl DeletionConfirmation {
    pub fn plan(&self) -> DeletionPlan {
        DeletionPlan {
            dry_run: true,
            cluster: self.cluster.clone(),
            place: self.place.clone(),
            journal: self.journal.clone(),
            data_disks: self.disks,
            others: self.named().cloned().collect(),
        }
    }

    pub fn of(cluster: &str, site: &dyn Site, disks: bool) -> Self {
        Self { cluster: cluster.to_owned(), place: site.words(), journal: site.journal(), disks, ..Self::default() }
    }

    /// All lines that the question lists.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        let disks = self.left.iter().chain(&self.doubtful).chain(&self.held).chain(&self.copies);
        self.also.iter().chain(disks).chain(&self.tenants)
    }

    /// Asks for the cluster's name, unless it was given. Fails if it is another one.
    pub fn confirmed(&self, given: Option<&str>) -> anyhow::Result<()> {
        self.confirmed_by(given, |question| ask(question, "give the cluster's name with --confirm"))
    }

    fn confirmed_by(
        &self,
        given: Option<&str>,
        ask: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        by_name("cluster", &self.cluster, given, || {
            ask(&format!("{}\nType the cluster's name to confirm it", self.summary()))
        })
    }

    /// The text lists everything that is removed in addition. No other output does, so the operator cannot miss it.
    pub fn summary(&self) -> String {
        let Self { cluster, place, journal, disks, left, doubtful: _, held: _, copies: _, also, tenants: _ } = self;
        let named: String = self.named().map(|named| format!("{named}\n")).collect();
        let and_disks = match (disks, left.len()) {
            (false, _) => "; its data disks stay".to_owned(),
            (true, 0) => ", and its data disks with all that it knows".to_owned(),
            (true, left) => {
                let also = format!("also the {left} that are named above as going, which no VM of it holds");
                format!(", and its data disks with all that it knows, {also}")
            }
        };
        let also = match also.len() {
            0 => String::new(),
            also => format!(", and the {also} that are named above"),
        };
        format!(
            "{named}All VMs of the cluster {cluster} in {place} are removed{also}{and_disks}.\nIts journal is removed too: {journal}."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::schemas::tests::fits;

    #[test]
    fn only_the_name_confirms_the_listed_removals() {
        let asked = |given: Option<&str>, answer: &str, disks| {
            let (place, journal) = ("a lab".to_owned(), "what is in [ds] kaas/control".to_owned());
            let left =
                ["d1 at [ds] cp1.vmdk", "d2 at [ds] cp2.vmdk", "d3 at [ds] cp3.vmdk"].map(str::to_owned).to_vec();
            let also = ["VM cp8", "VM cp9"].map(str::to_owned).to_vec();
            let doubtful = vec!["d4 at [ds] cp4.vmdk".to_owned()];
            let held = vec!["d5 at [ds] cp5.vmdk".to_owned()];
            let copies = vec!["a copy at [ds] cp6.vmdk".to_owned()];
            let tenants = Some("It has tenant clusters: blue/shop".to_owned());
            let cluster = "control".to_owned();
            let going =
                DeletionConfirmation { cluster, place, journal, disks, left, doubtful, held, copies, also, tenants };
            fits("control-deletion", &going.plan());
            let mut shown = String::new();
            let done = going.confirmed_by(given, |question| {
                shown += question;
                Ok(answer.to_owned())
            });
            (done.map_err(|error| error.to_string()), shown)
        };
        assert!(asked(None, "control", false).0.is_ok());
        let question = asked(None, "control", false).1;
        assert!(
            question.contains("its data disks stay") && question.contains("what is in [ds] kaas/control"),
            "{question}"
        );
        assert!(question.contains("and the 2 that are named above"), "{question}");
        let question = asked(None, "control", true).1;
        assert!(question.contains("with all that it knows, also the 3 that are named above as going"), "{question}");
        let named = "VM cp8\nVM cp9\nd1 at [ds] cp1.vmdk\nd2 at [ds] cp2.vmdk\nd3 at [ds] cp3.vmdk\nd4 at [ds] cp4.vmdk\nd5 at [ds] cp5.vmdk\na copy at [ds] cp6.vmdk\nIt has tenant clusters: blue/shop\nAll VMs of the cluster";
        assert!(question.starts_with(named), "{question}");
        assert_eq!(asked(Some("control"), "", true), (Ok(()), String::new()));
        for (given, answer) in [(None, ""), (None, "yes"), (None, "Control"), (Some("other"), "control")] {
            let refused = asked(given, answer, false).0.unwrap_err();
            assert_eq!(refused, "not confirmed: the cluster is control; nothing was changed");
        }
    }
}
