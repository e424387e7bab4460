//! The command line of `kaas-agent`. It parses, runs, and chooses the exit status.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use crate::boot::plan::{self, Plan};
use crate::boot::{early, mark_healthy, reset, run};
use crate::cluster::encryption::command::Encryption;
use crate::cluster::etcd::command::Snapshots;
use crate::cluster::etcd::{replace, restore};
use crate::cluster::kubernetes::PKI;
use crate::cluster::pki::CertificateAuthorities;
use crate::cluster::pki::ssh::{self, SshCa};
use crate::cluster::pod_network::desired::Settings;
use crate::cluster::records::Records;
use crate::cluster::{certificates, controller_end, join_window, pod_network};
use crate::faces::{bundle, console};
use crate::host::command::Host;
use crate::host::disk::scratch;
use crate::host::files;
use crate::host::image;
use crate::intake::config;
use crate::intake::config::Output;
use crate::intake::preflight::Clock;
use crate::node::reconfigure;
use crate::status::Status;
use crate::system::clock;
use crate::upgrade::kubernetes;
use crate::upgrade::swap;

const AFTER_HELP: &str = "\
Exit status:
  0  done; for `status`: this node does its part of the cluster;
     for `validate`: the environment is in order
  1  failed, the reason is on standard error; for `validate` and `configure`: it is not in
     order, and nothing was changed
  2  the command line was not understood
  3  for `status`: this node is not ready (yet)
  4  for `status` and `plan`: the agent has not come that far since power-on";

/// The agent of a KaaS appliance: makes a Kubernetes node of this VM
/// and keeps it one. It runs as the service `kaas-agent`; its journal is shown by
/// `journalctl -u kaas-agent`.
#[derive(Parser)]
#[command(name = "kaas-agent", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the boot flow, then watch: what the service does
    Run,
    /// Give the system its machine ID and host name before it starts: what the initrd does
    Early(early::Options),
    /// Check the scratch file system, and recreate it if it cannot be repaired: what the service kaas-scratch-check does
    #[command(hide = true)]
    CheckScratch {
        /// The partition's device
        device: PathBuf,
    },
    /// Keep the time on the data disk, below which the clock is not believed at the next power-on
    #[command(hide = true)]
    KeepTime,
    /// Show the state of this node: phase, health, findings
    Status {
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Show what was decided at this boot, step by step
    Plan {
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Judge an OVF environment as the first boot would, on any machine
    ///
    /// Every finding is shown at once. Nothing is changed.
    Validate {
        /// The XML document or an ISO 9660 image with it; `-` for standard input
        environment: PathBuf,
        /// The description of the image that it is meant for
        #[arg(long, default_value = contract::image::PATH)]
        image: PathBuf,
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Change properties of this node: those of the OVF form, by their keys
    ///
    /// Until the node is configured, any of them, in place of the OVF environment's; after
    /// its cluster has formed, those that may still change. All of them are judged
    /// together as at first boot, and nothing is changed while something is wrong.
    Configure(reconfigure::Options),
    /// Take or list snapshots of the cluster's store
    #[command(subcommand)]
    Snapshot(Snapshots),
    /// Say how Secrets are encrypted, or make a new key for them
    #[command(subcommand)]
    Encryption(Encryption),
    /// List, renew or revoke certificates, install or remove your own for the Kubernetes API
    Certificate(certificates::command::Options),
    /// Issue a kubeconfig for an administrator or a member of a team, or a certificate for monitoring
    ///
    /// For a member, name user and group: `kaas-agent kubeconfig --user anna --group team-blue`. The certificate is valid for a day,
    /// and has the rights that are bound to that user and group.
    ///
    /// The key is printed once and kept nowhere. Each issue is noted in /data/kaas/issued.log. `kaas-agent certificate revoke`
    /// has the nodes' endpoints refuse it. The Kubernetes API accepts it until it expires, or until the cluster role binding of
    /// the group kubeadm:cluster-admins is removed.
    Kubeconfig(certificates::command::KubeconfigOptions),
    /// Show the line for known_hosts that vouches for SSH on all control-plane nodes and on the virtual IP
    ///
    /// `ssh admin@NODE sudo kaas-agent ssh-authority >> ~/.ssh/known_hosts`: from then on no node's key is asked
    /// for or warned of, whichever node has the virtual IP, and whichever was replaced.
    SshAuthority,
    /// Gather what helps to understand this node in one .tar.gz, without secrets
    ///
    /// Plain text and JSON; README.txt in it says what is where, what was cut and what is
    /// missing. To fetch one: `ssh admin@NODE sudo kaas-agent support-bundle --file - > bundle.tar.gz`
    SupportBundle(bundle::Options),
    /// Erase this node's data and restart it as freshly deployed
    ///
    /// The node's name must be typed out, and where the cluster ends with this node the
    /// cluster's name as well. No disk is touched that is not certainly this node's.
    Reset(reset::Options),
    /// Restore the cluster's store from a snapshot: after the quorum was lost, or to return the cluster to an earlier state
    ///
    /// The first node that restores a snapshot prints the code with which the others restore the same one. With --alone this node
    /// continues without them. Changes since the snapshot are lost. The old data is kept next to the new data.
    Restore(restore::Options),
    /// Let a control-plane node that has not joined yet fetch its keys for another hour, on the first control-plane node
    ///
    /// Until the hour is over, the deployment secret and the node's address give the keys of the
    /// cluster's CAs. For example: `kaas-agent await cp3`
    Await(join_window::Options),
    /// Replace a control-plane node that has lost its data disk, on a healthy one
    ///
    /// Removes the lost node and says a one-time code with which a blank VM of the same
    /// name and address joins in its place. Refused while the node still answers, or if
    /// etcd would lose its quorum.
    ReplaceMember(replace::Options),
    /// Make this node ready for the shutdown of its VM, so that a VM of another image can take over
    ///
    /// Yields the virtual IP, moves etcd's leadership, moves the pods away and writes to the data
    /// disk which image may take it. Refused, with the reason, while the cluster could not do without this node.
    PrepareSwap(swap::command::Options),
    /// Commit a swap: from then on the former VM can no longer take the data disk back
    CommitSwap,
    /// Upgrade Kubernetes on this node to the next minor version that its image carries
    ///
    /// One node at a time, after the image swap was committed everywhere: the other nodes take over the virtual IP and the pods
    /// meanwhile. There is no rollback but restoring a snapshot.
    UpgradeKubernetes(kubernetes::command::Options),
    /// Wait until this boot is good, and mark it so: what the service kaas-mark-good does
    MarkGood,
    /// Adopt the data disk of a VM that is off for good and has not released it
    ///
    /// A VM that is shut down cleanly releases its data disk by itself; this is for one that was cut
    /// off. The node's name must be typed out. Two VMs with one disk's content destroy the cluster's
    /// store: prove that the other one is off and cannot come back. This VM restarts as the node.
    ForceAdopt(swap::force_adopt::Options),
    /// Release the data disk: what the service kaas-release does when the system shuts down
    #[command(hide = true)]
    Release,
    /// End the controller of tenant clusters: what the service kaas-controller-end does when the system shuts down
    #[command(hide = true)]
    EndController,
    /// Show status and menu on this terminal: what the VM's own console does
    Console(console::Options),
    /// Keep the pod network: what the service kaas-pod-network does
    PodNetwork,
    /// Name the image and the versions in it
    Version,
}

const FAILED: u8 = 1;
const NOT_READY: u8 = 3;
const NOTHING_YET: u8 = 4;

pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_journal_or_stderr();
    leave_no_core_dump();
    match act(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("kaas-agent: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

/// Prevents core dumps, which would contain keys and secrets.
fn leave_no_core_dump() {
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        log::warn!("forbidding core dumps: {error}");
    }
}

fn act(command: Command) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    match command {
        Command::Run => Ok(run::run(root)),
        Command::Early(options) => early::command(&options).map(|()| ExitCode::SUCCESS),
        Command::CheckScratch { device } => scratch::ensure(&device, &Host).map(|_| ExitCode::SUCCESS),
        Command::KeepTime => clock::keep(root, Clock::of(root), false).map(|_| ExitCode::SUCCESS),
        Command::Status { output } => status(root, output),
        Command::Plan { output } => plan(root, output),
        Command::Validate { environment, image, output } => {
            let (mut stdin, mut stdout) = (std::io::stdin(), std::io::stdout());
            let valid =
                config::validate_command(&environment, &image, output, &mut stdin, &mut stdout, SystemTime::now())?;
            Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
        }
        Command::Configure(options) => {
            let made = reconfigure::command(root, &options, &mut std::io::stdin(), &mut std::io::stdout())?;
            Ok(if made { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
        }
        Command::Snapshot(snapshots) => snapshots.run(root, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS),
        Command::Encryption(encryption) => encryption.run(root, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS),
        Command::Certificate(options) => {
            certificates::command::command(root, &options, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Kubeconfig(options) => {
            certificates::command::kubeconfig(root, &options, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::SshAuthority => ssh_authority(root),
        Command::Restore(options) => {
            restore::command(root, &options, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::SupportBundle(options) => bundle::command(root, &options, &Host).map(|()| ExitCode::SUCCESS),
        Command::Reset(options) => reset::command(root, &options, &Host).map(|()| ExitCode::SUCCESS),
        Command::Await(options) => {
            let (now, uptime) = (SystemTime::now(), join_window::uptime()?);
            join_window::command(root, &options, now, uptime, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::ReplaceMember(options) => {
            replace::command(root, &options, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::PrepareSwap(options) => {
            swap::command::prepare(root, &options, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::CommitSwap => swap::command::commit(root, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS),
        Command::UpgradeKubernetes(options) => {
            kubernetes::command::command(root, &options, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::MarkGood => mark_healthy::command(root, &mut std::io::stdout()).map(|()| ExitCode::SUCCESS),
        Command::ForceAdopt(options) => swap::force_adopt::command(root, &options, &Host).map(|()| ExitCode::SUCCESS),
        Command::Release => swap::release::command(root).map(|()| ExitCode::SUCCESS),
        Command::EndController => controller_end::command(&Host).map(|()| ExitCode::SUCCESS),
        Command::Console(options) => console::command(&options).map(|()| ExitCode::SUCCESS),
        Command::PodNetwork => pod_network(root),
        Command::Version => version(root),
    }
}

fn status(root: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let status = match Status::read(root) {
        Ok(status) => status,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("kaas-agent: the agent has not reported since power-on; see `systemctl status kaas-agent`");
            return Ok(ExitCode::from(NOTHING_YET));
        }
        Err(error) => return Err(error.into()),
    };
    match output {
        Output::Text => say(&status.page())?,
        Output::Json => say(&format!("{}\n", serde_json::to_string_pretty(&status)?))?,
    }
    Ok(if status.is_ready() { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

fn plan(root: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let text = match std::fs::read_to_string(files::below(root, plan::PATH)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("kaas-agent: nothing has been decided yet since power-on; `kaas-agent status` says why");
            return Ok(ExitCode::from(NOTHING_YET));
        }
        Err(error) => return Err(error.into()),
    };
    match output {
        Output::Json => say(&text)?,
        Output::Text => {
            let plan: Plan = serde_json::from_str(&text)?;
            // The number of the step under way. `None` if all are done.
            let under_way = Status::read(root).ok().and_then(|status| status.work).map(|work| work.number);
            for (number, step) in (1..).zip(&plan.steps) {
                let mark = match under_way {
                    Some(now) if number > now => "      ",
                    Some(now) if number == now => "now   ",
                    _ => "done  ",
                };
                say(&format!("{mark}{number:>2}  {step}\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn pod_network(root: &Path) -> anyhow::Result<ExitCode> {
    let config = Records::new(root).config()?.context("this node has no configuration yet")?;
    let kubeconfig = files::below(root, pod_network::KUBECONFIG);
    let settings = Settings::of(&config).context("this worker has not joined its cluster yet")?;
    pod_network::run(&settings, kubeconfig, root, &Host).map(|()| ExitCode::SUCCESS)
}

fn ssh_authority(root: &Path) -> anyhow::Result<ExitCode> {
    let config = Records::new(root).config()?.context("this node has no configuration yet")?;
    let authorities =
        CertificateAuthorities::read(&files::below(root, PKI)).context("this node is in no cluster yet")?;
    say(&ssh::known_hosts(config.control_plane()?, &SshCa::of(&authorities)?))?;
    Ok(ExitCode::SUCCESS)
}

fn version(root: &Path) -> anyhow::Result<ExitCode> {
    say(&format!("kaas-agent {}\n", env!("CARGO_PKG_VERSION")))?;
    let image = image::read(root)?;
    let minors: Vec<&str> = image.kubernetes.iter().map(|release| release.version.as_str()).collect();
    say(&format!("image      {}\n", image.title()))?;
    say(&format!("Kubernetes {}\netcd       {}\nCoreDNS    {}\n", minors.join(", "), image.etcd, image.coredns))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that closes the pipe is not an error.
fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Under systemd each record goes to the journal with its level and place, otherwise as a line to standard error.
fn log_to_journal_or_stderr() {
    let installed = if systemd_journal_logger::connected_to_journal() {
        systemd_journal_logger::JournalLog::new().is_ok_and(|journal| journal.install().is_ok())
    } else {
        log::set_logger(&StandardError).is_ok()
    };
    if installed {
        log::set_max_level(log::LevelFilter::Info);
    }
}

struct StandardError;

impl log::Log for StandardError {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{}: {}", record.level().as_str().to_lowercase(), record.args());
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A line of the reference for each visible command.
    fn listed(command: &clap::Command, name: &str) -> String {
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        shown.fold(String::new(), |text, below| {
            let name = format!("{name} {}", below.get_name());
            if below.has_subcommands() {
                return text + &listed(below, &name);
            }
            format!("{text}| `{name}` | {} |\n", below.get_about().map(ToString::to_string).unwrap_or_default())
        })
    }

    #[test]
    fn the_reference_lists_the_commands() {
        let reference = include_str!("../../../docs/reference/commands.md");
        let (_, block) = reference.split_once("<!-- agent-commands:begin -->\n").unwrap();
        let (block, _) = block.split_once("<!-- agent-commands:end -->").unwrap();
        let expected = format!("| Command | What it does |\n| --- | --- |\n{}", listed(&Cli::command(), "kaas-agent"));
        assert!(block == expected, "docs/reference/commands.md is behind the code; it has to say:\n{expected}");
    }
}
