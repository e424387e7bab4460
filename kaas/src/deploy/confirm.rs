//! The confirmation that a cluster is to go: its name, typed.

use crate::cluster_file::Site;
use crate::confirm::{ask, by_name};

pub struct DestroyConfirmation {
    pub cluster: String,
    /// Where it is, in words for people.
    pub place: String,
    /// Where its journal is, in words for people.
    pub journal: String,
    /// Whether its data disks go with it.
    pub disks: bool,
    /// What says of each of these that no VM of the cluster holds which disk it is.
    pub left: Vec<String>,
    /// What says of each of these that is not there and is named no more which disk it is.
    pub doubtful: Vec<String>,
    /// What says of each of these that was to be removed before, and that a VM holds now, which disk and which VM it is.
    pub held: Vec<String>,
    /// What says of each copy of a data disk, which stays, which it is.
    pub copies: Vec<String>,
    /// What says of each VM that goes as well which it is.
    pub also: Vec<String>,
    /// What is to say of the tenant clusters that it has; none if it has none.
    pub tenants: Option<String>,
}

impl DestroyConfirmation {
    pub fn of(cluster: &str, site: &dyn Site, disks: bool) -> Self {
        Self {
            cluster: cluster.to_owned(),
            place: site.words(),
            journal: site.journal(),
            disks,
            left: Vec::new(),
            doubtful: Vec::new(),
            held: Vec::new(),
            copies: Vec::new(),
            also: Vec::new(),
            tenants: None,
        }
    }

    /// All that stands in the question one by one.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        let disks = self.left.iter().chain(&self.doubtful).chain(&self.held).chain(&self.copies);
        self.also.iter().chain(disks).chain(&self.tenants)
    }

    /// Has a person type the cluster's name, unless it was given.
    ///
    /// # Errors
    /// Another name was given or typed, or nobody is there to type one: nothing was changed.
    pub fn confirmed(&self, given: Option<&str>) -> anyhow::Result<()> {
        self.confirmed_by(given, |question| ask(question, "give the cluster's name with --confirm"))
    }

    fn confirmed_by(
        &self,
        given: Option<&str>,
        ask: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        by_name(&self.cluster, given, || ask(&self.question()))
    }

    /// What goes as well stands in it, and nowhere else: whoever sees the question sees that.
    fn question(&self) -> String {
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
            "{named}All VMs of the cluster {cluster} in {place} are removed{also}{and_disks}.\nIts journal goes as well: {journal}.\nType the \
             cluster's name to confirm it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_clusters_name_confirms_and_what_goes_is_named() {
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
                DestroyConfirmation { cluster, place, journal, disks, left, doubtful, held, copies, also, tenants };
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
