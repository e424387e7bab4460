//! The controller of tenant clusters in a cluster that has formed, as the image brings it.

use scenarios::scenario::{ALL, FORMING, Scenario};

/// A controller of the node's image runs on each of the three nodes, one of them leads, and the kinds are served.
pub fn each_node_runs_a_controller_and_one_leads(scenario: &Scenario) {
    let read = |kind: &str, path: &str| {
        let output = format!("--output=jsonpath={path}");
        let asked = ["--namespace=kaas-system", "get", kind, "kaas-controller", "--ignore-not-found", &output];
        scenario.lab().kubectl(&asked)
    };
    scenario.wait("a controller on each node", FORMING, || {
        Ok(read("daemonset", "{.status.numberAvailable}")? == ALL.len().to_string())
    });
    // A Lease that a lost node has held is another's after 20 s.
    scenario.wait("one of them to lead", FORMING, || {
        let holder = read("lease", "{.spec.holderIdentity}")?;
        Ok(ALL.iter().any(|node| holder.starts_with(&format!("controller {node} "))))
    });
    let image = scenario.inside(&scenario.vm_of("cp1"), &["cat", "/usr/lib/kaas/image.json"]);
    let marked = read("daemonset", r"{.spec.template.metadata.annotations.kaas\.local/build}");
    let marked = marked.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(!marked.is_empty() && image.contains(&format!("\"build\": \"{marked}\"")), "{marked} is not of {image}");
    scenario.kubectl(&["get", "tenantclusters.kaas.local,providers.kaas.local", "--all-namespaces"]);
    scenario.reached("a controller runs on each node, and one of them leads");
}
