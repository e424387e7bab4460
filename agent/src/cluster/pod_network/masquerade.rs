//! Lets pods talk to the world outside of the cluster's pods: in a table of
//! nftables that nobody else touches.

use ipnet::Ipv4Net;

use crate::host::command::{self, Command, Runner};

/// The table, of the family `ip`.
const TABLE: &str = "kaas_pods";

/// Keeps the table as it should be.
#[derive(Debug, Default)]
pub struct Masquerade {
    /// The range, and the table as the kernel listed it after it was laid: a
    /// listing is not written the way the input was.
    laid: Option<(Ipv4Net, Vec<u8>)>,
}

impl Masquerade {
    /// Sees to it that packets of pods to addresses that are no pod's leave with
    /// the node's address, and says whether the table had to be laid.
    ///
    /// Other nodes count as outside: they would answer a pod's own address
    /// through the tunnel, on another way than the question came, and networks with
    /// anti-spoofing drop packets of addresses that they have not given out. This
    /// node itself is not asked by way of this hook and sees the pod's address.
    ///
    /// # Errors
    /// When `nft` fails; the table is as before then, the change being one transaction.
    pub fn ensure(&mut self, runner: &dyn Runner, pod_cidr: Ipv4Net) -> Result<bool, command::Error> {
        if let Some((range, listing)) = &self.laid
            && *range == pod_cidr
            && runner.run(&list()).is_ok_and(|present| present == *listing)
        {
            return Ok(false);
        }
        runner.run(&Command::new("nft").args(["-f", "-"]).input(ruleset(pod_cidr)))?;
        self.laid = Some((pod_cidr, runner.run(&list())?));
        Ok(true)
    }
}

fn list() -> Command {
    Command::new("nft").args(["list", "table", "ip", TABLE])
}

/// Multicast stays as it is: it has no conversation that could be turned back.
pub(super) fn ruleset(pod_cidr: Ipv4Net) -> String {
    format!(
        "add table ip {TABLE}\n\
         delete table ip {TABLE}\n\
         table ip {TABLE} {{\n\
         \tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\tip saddr {pod_cidr} ip daddr != {pod_cidr} ip daddr != 224.0.0.0/4 masquerade\n\
         \t}}\n\
         }}\n"
    )
}
