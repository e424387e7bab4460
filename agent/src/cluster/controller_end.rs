//! The controller of tenant clusters ends before the other pods when its node is shut down. It returns its Lease
//! through the API server of this node, which is one of these pods. Then systemd ends the others by their scopes,
//! all at once (`systemd/system/kaas-controller-end.service`). Knows nothing of what a controller does.

use anyhow::Context as _;

use crate::cluster::addons::controller::{GRACE, NAME, NAMESPACE};
use crate::host::command::{Command, Runner};

/// Ends the controller's container on this node, if one runs. Waits until it has ended, at most for the grace period of
/// its pod. The kubelet is stopped by then, so nothing starts it again.
pub fn command(runner: &dyn Runner) -> anyhow::Result<()> {
    // These are the labels that the kubelet sets on each container (`k8s.io/kubelet/pkg/types/labels.go`).
    let labels = [("namespace", NAMESPACE), ("name", NAME)];
    let list = labels
        .into_iter()
        .zip(["pod", "container"])
        .map(|((what, value), of)| format!("--label=io.kubernetes.{of}.{what}={value}"));
    let found = runner.run(&Command::new("crictl").args(["ps", "--quiet"]).args(list));
    let found = found.context("looking for the controller of tenant clusters")?;
    for container in String::from_utf8_lossy(&found).split_whitespace() {
        let stop = Command::new("crictl").args(["stop", &format!("--timeout={GRACE}"), container]);
        runner.run(&stop).context("ending the controller of tenant clusters")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::host::command::Error;

    struct Runtime {
        running: &'static str,
        asked: Mutex<Vec<String>>,
    }

    impl Runner for Runtime {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            let answer = if line.starts_with("crictl ps ") { self.running } else { "" };
            self.asked.lock().unwrap().push(line);
            Ok(answer.into())
        }
    }

    fn asked(running: &'static str) -> Vec<String> {
        let runtime = Runtime { running, asked: Mutex::default() };
        command(&runtime).unwrap();
        runtime.asked.into_inner().unwrap()
    }

    #[test]
    fn only_the_controllers_container_gets_its_grace_period() {
        let list = "crictl ps --quiet --label=io.kubernetes.pod.namespace=kaas-system \
                    --label=io.kubernetes.container.name=kaas-controller";
        assert_eq!(asked(""), [list]);
        assert_eq!(asked("f00d\n"), [list, "crictl stop --timeout=45 f00d"]);
    }

    /// During a shutdown, units that start last stop first.
    #[test]
    fn controller_ends_between_kubelet_and_other_pods() {
        let unit = include_str!("../../../systemd/system/kaas-controller-end.service");
        let kubelet = include_str!("../../../systemd/system/kubelet.service");
        let pods = include_str!("../../../systemd/system/cri-containerd-.scope.d/kaas.conf");
        let says = |text: &str, key: &str, value: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            lines.flat_map(str::split_whitespace).any(|one| one == value)
        };
        assert!(says(kubelet, "Wants", "kaas-controller-end.service"));
        assert!(says(unit, "Before", "kubelet.service"));
        assert!(says(pods, "Before", "kaas-controller-end.service") && says(pods, "Before", "kubelet.service"));
        for alive in ["containerd.service", "etcd.service", "kaas-pods.target"] {
            assert!(says(unit, "After", alive), "{alive}");
        }
        assert!(unit.contains("\nExecStop=/usr/bin/kaas-agent end-controller\n"), "{unit}");
        let carried = contract::image::kinds_of("controller");
        assert!(unit.contains(&format!("\nConditionPathExists={carried}\n")), "{unit}");
        let limit = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        let limit: u32 = limit.expect("a limit").parse().unwrap();
        let runtime = include_str!("../../../image/root/etc/crictl.yaml");
        let answer = runtime.lines().find_map(|line| line.strip_prefix("timeout: "));
        let answer: u32 = answer.expect("how long crictl waits for an answer").parse().unwrap();
        // The runtime gets two requests: the list, and the stop. The second answer comes after the controller's grace
        // period.
        assert!(limit > answer + GRACE + answer, "{limit} s, with {answer} s for an answer and {GRACE} s to end");
    }
}
