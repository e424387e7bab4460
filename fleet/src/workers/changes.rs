//! The operator's changes of workers, and of how they are replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::pool::Pool;

/// The changes. `None` leaves the pool's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub processors: Option<u32>,
    /// Memory in MiB.
    pub memory: Option<u32>,
    /// Data disk in bytes. Zero removes it.
    pub data_disk: Option<u64>,
    /// All labels of the nodes.
    pub labels: Option<BTreeMap<String, String>>,
    /// All taints of the nodes.
    pub taints: Option<BTreeSet<String>>,
    /// As [`super::Rollout::max_surge`].
    pub max_surge: Option<usize>,
    /// As [`super::Rollout::max_unavailable`].
    pub max_unavailable: Option<usize>,
    /// As [`super::Rollout::drain_seconds`].
    pub drain_seconds: Option<u64>,
    /// As [`super::Rollout::join_seconds`].
    pub join_seconds: Option<u64>,
    /// As [`super::Rollout::paused`].
    pub paused: Option<bool>,
}

impl Changes {
    /// Applies the changes to a pool.
    pub fn apply(&self, pool: &mut Pool) {
        let (template, rollout) = (&mut pool.template, &mut pool.rollout);
        set(&mut template.size.processors, &self.processors);
        set(&mut template.size.memory, &self.memory);
        set(&mut template.size.data_disk, &self.data_disk.map(|size| Some(size).filter(|size| *size > 0)));
        set(&mut template.labels, &self.labels);
        set(&mut template.taints, &self.taints);
        set(&mut rollout.max_surge, &self.max_surge);
        set(&mut rollout.max_unavailable, &self.max_unavailable);
        set(&mut rollout.drain_seconds, &self.drain_seconds);
        set(&mut rollout.join_seconds, &self.join_seconds);
        set(&mut rollout.paused, &self.paused);
    }
}

fn set<T: Clone>(of_pool: &mut T, said: &Option<T>) {
    if let Some(said) = said {
        of_pool.clone_from(said);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::Rollout;
    use super::super::tests::fake::pool;
    use super::*;

    #[test]
    fn only_given_values_change_and_empty_values_clear() {
        let mut edge = pool(2);
        edge.template.size.data_disk = Some(1 << 30);
        edge.template.taints.insert("edge=true:NoSchedule".to_owned());
        edge.rollout.drain_seconds = 900;
        let mut same = edge.clone();
        Changes::default().apply(&mut same);
        assert_eq!(same, edge);

        let labels = BTreeMap::from([("site".to_owned(), "edge".to_owned())]);
        let changes = Changes {
            memory: Some(4096),
            data_disk: Some(0),
            labels: Some(labels.clone()),
            taints: Some(BTreeSet::new()),
            paused: Some(true),
            ..Changes::default()
        };
        changes.apply(&mut same);
        let template = &same.template;
        assert_eq!((template.size.memory, template.size.processors, template.size.data_disk), (4096, 2, None));
        assert_eq!((&template.labels, template.taints.len()), (&labels, 0));
        assert_eq!(same.rollout, Rollout { paused: true, ..edge.rollout });
    }
}
