//! The options about workers: their hardware, and their replacement. Pure.

use std::time::Duration;

use clap::{Args, ValueEnum};
use fleet::workers::{Changes, Discards};
use kaas::work::duration;

use super::super::key_value;

/// The options for new workers.
#[derive(Args)]
pub struct WorkerArgs {
    /// Memory of each worker in MiB. Default: the current value, 2048 for the first workers
    #[arg(long, value_name = "MIB")]
    worker_memory: Option<u32>,
    /// Virtual processors of each worker. Default: the current value, 2 for the first workers
    #[arg(long)]
    worker_processors: Option<u32>,
    /// Size of a data disk of each worker in MiB, for volumes that are kept on it. 0 for no data disk. Default: the current
    /// value, no data disk for the first workers
    #[arg(long, value_name = "MIB")]
    worker_data_disk: Option<u64>,
    /// Label of the workers' nodes. Give the option several times for several labels. They replace all former ones
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// Taint of the workers' nodes. Give the option several times for several taints. They replace all former ones
    #[arg(long = "taint", value_name = "KEY=VALUE:EFFECT")]
    taints: Vec<String>,
    /// How long a worker may take to join, times its timeout factor (5 if processors are emulated). After that, no further
    /// worker is created. Default: the current value, 15m at first
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    join_timeout: Option<Duration>,
}

impl WorkerArgs {
    pub(super) fn changes(&self) -> Changes {
        Changes {
            memory: self.worker_memory,
            processors: self.worker_processors,
            data_disk: self.worker_data_disk.map(|size| size << 20),
            labels: (!self.labels.is_empty()).then(|| self.labels.iter().cloned().collect()),
            taints: (!self.taints.is_empty()).then(|| self.taints.iter().cloned().collect()),
            join_seconds: self.join_timeout.map(|timeout| timeout.as_secs()),
            ..Changes::default()
        }
    }
}

/// The options that change workers.
#[derive(Args)]
pub struct WorkerChangeArgs {
    #[command(flatten)]
    made: WorkerArgs,
    /// Remove all labels of the workers' nodes
    #[arg(long, conflicts_with = "labels")]
    no_labels: bool,
    /// Remove all taints of the workers' nodes
    #[arg(long, conflicts_with = "taints")]
    no_taints: bool,
    #[command(flatten)]
    rollout: RolloutArguments,
}

/// The options for the replacement of workers.
#[derive(Args)]
struct RolloutArguments {
    /// Number of VMs that may exist beyond the wanted workers meanwhile. Default: the current value, 1 at first
    #[arg(long)]
    max_surge: Option<usize>,
    /// Number of wanted workers that may be missing meanwhile. Default: the current value, 0 at first
    #[arg(long)]
    max_unavailable: Option<usize>,
    /// How long pods may take to move away from a worker. After that, the command waits for the operator. Default: the current
    /// value, 5m at first
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    drain_timeout: Option<Duration>,
}

/// The data that may be lost with the workers that this command removes. It does not apply to other workers.
#[derive(Args)]
pub struct DiscardArgs {
    /// Policy for volumes that are kept only on a worker
    #[arg(long, value_enum, default_value = "keep")]
    local_volumes: DiscardPolicy,
    /// Policy for pods without a controller, which are not started again on another node
    #[arg(long, value_enum, default_value = "keep")]
    bare_pods: DiscardPolicy,
}

/// The policy for data that only a worker has.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiscardPolicy {
    /// Keep the worker until the operator has saved the data
    Keep,
    /// Lose the data with the worker
    Discard,
}

impl DiscardArgs {
    pub(super) fn discards(&self) -> Discards {
        Discards {
            delete_local_volumes: self.local_volumes == DiscardPolicy::Discard,
            delete_unmanaged_pods: self.bare_pods == DiscardPolicy::Discard,
        }
    }
}

impl WorkerChangeArgs {
    pub(super) fn changes(&self) -> Changes {
        let (made, rollout) = (self.made.changes(), &self.rollout);
        Changes {
            labels: if self.no_labels { Some(Default::default()) } else { made.labels },
            taints: if self.no_taints { Some(Default::default()) } else { made.taints },
            max_surge: rollout.max_surge,
            max_unavailable: rollout.max_unavailable,
            drain_seconds: rollout.drain_timeout.map(|timeout| timeout.as_secs()),
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
    fn missing_worker_options_change_nothing() {
        assert_eq!(said("").unwrap(), Changes::default());
        let all = said(
            "--worker-memory 4096 --worker-data-disk 0 --label site=edge --no-taints --drain-timeout 1m --join-timeout 20m",
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
    fn only_named_data_may_be_discarded() {
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
