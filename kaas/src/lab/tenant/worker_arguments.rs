//! What is said of workers on the command line: how they are made, and how they are replaced. Does nothing.

use clap::{Args, ValueEnum};
use fleet::workers::{Changes, Discards};

use super::super::key_value;

/// What workers are made like.
#[derive(Args)]
pub struct WorkerArgs {
    /// Memory of each worker in MiB. Not said, it stays; that of the first workers is 2048.
    #[arg(long, value_name = "MIB")]
    worker_memory: Option<u32>,
    /// Virtual processors of each worker. Not said, they stay; the first workers have 2.
    #[arg(long)]
    worker_processors: Option<u32>,
    /// Size of a data disk of each worker in MiB, for volumes that are kept on it; 0 for none. Not said, it stays; the first
    /// workers have none.
    #[arg(long, value_name = "MIB")]
    worker_data_disk: Option<u64>,
    /// A label of the workers' nodes; may be given several times, and in place of all that they had.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// A taint of the workers' nodes; may be given several times, and in place of all that they had.
    #[arg(long = "taint", value_name = "KEY=VALUE:EFFECT")]
    taints: Vec<String>,
    /// How long a worker may take to join, in seconds, times its timeout factor (5 where processors are emulated); then no
    /// further one is made. Not said, it stays; it begins as 900.
    #[arg(long, value_name = "SECONDS")]
    join_limit: Option<u64>,
}

impl WorkerArgs {
    /// As the library takes it.
    pub(super) fn changes(&self) -> Changes {
        Changes {
            memory: self.worker_memory,
            processors: self.worker_processors,
            data_disk: self.worker_data_disk.map(|size| size << 20),
            labels: (!self.labels.is_empty()).then(|| self.labels.iter().cloned().collect()),
            taints: (!self.taints.is_empty()).then(|| self.taints.iter().cloned().collect()),
            join_seconds: self.join_limit,
            ..Changes::default()
        }
    }
}

/// What of workers is otherwise from now on.
#[derive(Args)]
pub struct WorkerChangeArgs {
    #[command(flatten)]
    made: WorkerArgs,
    /// The workers' nodes have no labels any more.
    #[arg(long, conflicts_with = "labels")]
    no_labels: bool,
    /// The workers' nodes have no taints any more.
    #[arg(long, conflicts_with = "taints")]
    no_taints: bool,
    #[command(flatten)]
    rollout: RolloutArguments,
}

/// How workers are replaced.
#[derive(Args)]
struct RolloutArguments {
    /// How many VMs there may be beyond the wanted workers meanwhile. Not said, it stays; it begins as 1.
    #[arg(long)]
    max_surge: Option<usize>,
    /// How many of the wanted workers may be missing meanwhile. Not said, it stays; it begins as 0.
    #[arg(long)]
    max_unavailable: Option<usize>,
    /// How long pods may take to move away from a worker, in seconds; then a person is waited for. Not said, it stays; it
    /// begins as 300.
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u64>,
}

/// What may be lost with the workers that the command lets go; it says nothing of any other one.
#[derive(Args)]
pub struct DiscardArgs {
    /// What becomes of volumes that are kept on a worker and nowhere else.
    #[arg(long, value_enum, default_value = "keep")]
    local_volumes: DiscardPolicy,
    /// What becomes of pods without a controller, which nobody starts elsewhere.
    #[arg(long, value_enum, default_value = "keep")]
    bare_pods: DiscardPolicy,
}

/// What becomes of what a worker alone has.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiscardPolicy {
    /// The worker stays until a person has seen to it.
    Keep,
    /// It is lost with the worker.
    Discard,
}

impl DiscardArgs {
    /// As the library takes it.
    pub(super) fn discards(&self) -> Discards {
        Discards {
            delete_local_volumes: self.local_volumes == DiscardPolicy::Discard,
            delete_unmanaged_pods: self.bare_pods == DiscardPolicy::Discard,
        }
    }
}

impl WorkerChangeArgs {
    /// As the library takes it.
    pub(super) fn changes(&self) -> Changes {
        let (made, rollout) = (self.made.changes(), &self.rollout);
        Changes {
            labels: if self.no_labels { Some(Default::default()) } else { made.labels },
            taints: if self.no_taints { Some(Default::default()) } else { made.taints },
            max_surge: rollout.max_surge,
            max_unavailable: rollout.max_unavailable,
            drain_seconds: rollout.drain,
            ..made
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        changed: WorkerChangeArgs,
        #[command(flatten)]
        lost: DiscardArgs,
    }

    fn said(line: &str) -> Result<Changes, clap::Error> {
        let words = ["replace-workers"].into_iter().chain(line.split_whitespace());
        Ok(Line::try_parse_from(words)?.changed.changes())
    }

    #[test]
    fn what_is_not_said_of_workers_changes_nothing() {
        assert_eq!(said("").unwrap(), Changes::default());
        let all = said(
            "--worker-memory 4096 --worker-data-disk 0 --label site=edge --no-taints --drain 60 --join-limit 1200",
        )
        .unwrap();
        let expected = Changes {
            memory: Some(4096),
            data_disk: Some(0),
            labels: Some([("site".to_owned(), "edge".to_owned())].into()),
            taints: Some([].into()),
            drain_seconds: Some(60),
            join_seconds: Some(1200),
            ..Changes::default()
        };
        assert_eq!(all, expected);
        assert!(said("--label site=edge --no-labels").is_err());
    }

    #[test]
    fn nothing_is_lost_that_was_not_named() {
        let lost =
            |line: &[&str]| Line::try_parse_from([&["remove-worker"][..], line].concat()).unwrap().lost.discards();
        assert_eq!(lost(&[]), Discards::default());
        let volumes = Discards { delete_local_volumes: true, delete_unmanaged_pods: false };
        assert_eq!(lost(&["--local-volumes", "discard"]), volumes);
        assert_eq!(
            lost(&["--bare-pods", "discard"]),
            Discards { delete_local_volumes: false, delete_unmanaged_pods: true }
        );
    }
}
