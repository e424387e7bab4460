//! A tenant of a scenario's control cluster, driven by the operator's command. A workload is requested from outside
//! while the tenant's workers come and go.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Output;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use contract::local_volumes;
use contract::properties::SERVICE_VIPS;
use fleet::nodes::{Client, Method};
use fleet::workers::{Cluster as _, ClusterChange, Token};
use serde_json::{Value, json};

use crate::running::Running;
use crate::scenario::{FORMING, MOMENT, Scenario, Setting};
use crate::server::{self, SERVICE};
use crate::tenant_command::{begin, command};

/// A control cluster of one node, for tenants.
pub fn control(setting: &Setting) -> Scenario {
    let scenario = Scenario::prepare(setting);
    scenario.power_on(&["cp1"]);
    scenario.all_ready(FORMING);
    scenario
}

pub struct Tenant<'a> {
    scenario: &'a Scenario,
}

impl<'a> Tenant<'a> {
    /// The tenant whose lab a scenario has.
    pub fn of(scenario: &'a Scenario) -> Self {
        Self { scenario }
    }

    /// Runs `kaas-dev lab tenant VERB` and returns its output, one JSON object. Its exit status must be `expected`.
    pub fn gives(&self, arguments: &[&str], expected: i32) -> Value {
        let started = Instant::now();
        let output = command(arguments, self.scenario.lab().name());
        let said = told(arguments, &output, expected);
        if arguments == ["status"] {
            // It is looked at again and again.
            return said;
        }
        self.scenario.reached(&format!(
            "kaas-dev lab tenant {} took {} s",
            arguments.join(" "),
            started.elapsed().as_secs()
        ));
        said
    }

    /// The same of one that ends well.
    pub fn run(&self, arguments: &[&str]) -> Value {
        self.gives(arguments, 0)
    }

    /// The same of one that goes on while something else is done.
    pub fn begins(&self, arguments: &[&'a str]) -> TenantCommand<'a> {
        let running = Running::of(begin(arguments, self.scenario.lab().name()));
        TenantCommand { scenario: self.scenario, arguments: arguments.to_vec(), running }
    }

    /// A new join token of the cluster, for a node of this name.
    pub fn token(&self, node: &str) -> Token {
        self.token_until(node, |token| token)
    }

    /// The same of one whose time is over.
    pub fn expired_token(&self, node: &str) -> Token {
        self.token_until(node, |token| Token { expires: now() - 60, ..token })
    }

    fn token_until(&self, node: &str, change: impl FnOnce(Token) -> Token) -> Token {
        let (token, client) = (change(Token::new(node, now(), 1)), self.client());
        let added = client.wait(client.change(ClusterChange::AddToken(&token)));
        added.unwrap_or_else(|error| panic!("making a token for {node}: {error:#}"));
        token
    }

    /// Why it is refused.
    pub fn refuses(&self, arguments: &[&str]) -> String {
        let output = command(arguments, self.scenario.lab().name());
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "kaas-dev lab tenant {}: {why}", arguments.join(" "));
        why
    }

    /// The versions of the kubelets by node, as the cluster knows them.
    pub fn kubelets(&self) -> BTreeMap<String, String> {
        let both = "{.metadata.name} {.status.nodeInfo.kubeletVersion}";
        let said = self.scenario.kubectl(&[
            "get",
            "nodes",
            &format!("--output=jsonpath={{range .items[*]}}{both}{{\"\\n\"}}{{end}}"),
        ]);
        said.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(node, version)| (node.into(), version.into()))
            .collect()
    }

    /// The names of the workers that do their part.
    pub fn workers(&self) -> Vec<String> {
        let status = self.run(&["status"]);
        let workers = status["workers"].as_array().expect("a list of workers").iter();
        let available = workers.filter(|worker| worker["available"] == true);
        available.map(|worker| worker["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// How long a worker took to join, in seconds from its power-on.
    pub fn joined_after(&self, worker: &str) -> u64 {
        let found = self.of_worker(worker);
        found["joined_seconds"].as_u64().unwrap_or_else(|| panic!("{worker} has not joined: {found}"))
    }

    /// The address that a worker is known by.
    pub fn address(&self, worker: &str) -> Ipv4Addr {
        let found = self.of_worker(worker);
        let address = found["address"].as_str().and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("{worker} has no address: {found}"))
    }

    /// The BIOS UUID of a worker's VM.
    pub fn vm(&self, worker: &str) -> String {
        let found = self.of_worker(worker);
        found["vm"].as_str().unwrap_or_else(|| panic!("{worker} has no VM: {found}")).to_owned()
    }

    fn of_worker(&self, worker: &str) -> Value {
        let status = self.run(&["status"]);
        let mut workers = status["workers"].as_array().expect("a list of workers").iter();
        workers.find(|one| one["name"] == worker).unwrap_or_else(|| panic!("no {worker} in {status}")).clone()
    }

    /// The memory (RSS) of all processes of a worker, its pods' included, in MiB. Pages that several share are counted
    /// for each.
    pub fn memory(&self, worker: &str) -> u64 {
        let said = self.scenario.inside(worker, &["sh", "-c", "grep -h ^VmRSS: /proc/[0-9]*/status || true"]);
        let kib = said.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        let mib = kib.sum::<u64>() >> 10;
        assert!(mib > 50, "all processes of {worker} have {mib} MiB: {said}");
        mib
    }

    /// Starts a server with two pods on two workers, one of which a budget keeps, and a service for it. Returns the
    /// address for requests from outside: the service's own one if the image gives services any, or else a port of the
    /// control-plane node.
    pub fn serves(&self) -> SocketAddr {
        let lab = self.scenario.lab();
        let control = &lab.plan().nodes[0];
        let has_addresses = control.properties.contains_key(SERVICE_VIPS);
        for (object, _) in server::objects(&self.scenario.carried(&control.name, "coredns"), has_addresses) {
            self.scenario.apply(&object);
        }
        self.scenario.wait("two pods of the server to be ready", MOMENT, || {
            let ready = ["get", "deployment", "web", "--output=jsonpath={.status.availableReplicas}"];
            Ok(lab.kubectl(&ready)? == "2")
        });
        let service = |path: &str| lab.kubectl(&["get", "service", "web", &format!("--output=jsonpath={{{path}}}")]);
        if has_addresses {
            let address = self.scenario.obtain("the service to have an address", MOMENT, || {
                Ok(service(".status.loadBalancer.ingress[0].ip")?.parse::<Ipv4Addr>().ok())
            });
            return SocketAddr::from((address, SERVICE));
        }
        let port = service(".spec.ports[0].nodePort").unwrap_or_else(|error| panic!("{error:#}"));
        SocketAddr::from((
            control.address,
            port.parse().unwrap_or_else(|_| panic!("the service has the port {port:?}")),
        ))
    }

    /// Starts a pod with a local volume, and waits until it runs.
    pub fn keeps(&self) {
        let lab = self.scenario.lab();
        let claim = json!({
            "storageClassName": local_volumes::CLASS, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        });
        self.scenario.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "rows"}, "spec": claim,
        }));
        self.scenario.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rows"},
            "spec": {
                "containers": [{
                    "name": "rows", "image": self.scenario.carried(&lab.plan().nodes[0].name, "coredns"), "imagePullPolicy": "Never", "args": ["-dns.port", "5353"],
                    "volumeMounts": [{"name": "rows", "mountPath": "/rows"}],
                }],
                "volumes": [{"name": "rows", "persistentVolumeClaim": {"claimName": "rows"}}],
            },
        }));
        self.scenario.wait("the pod with a local volume to run", MOMENT, || {
            Ok(lab.kubectl(&["get", "pod", "rows", "--output=jsonpath={.status.phase}"])? == "Running")
        });
    }

    /// The workers that pods of the server run on.
    pub fn served_by(&self) -> anyhow::Result<Vec<String>> {
        let said = self.scenario.lab().kubectl(&["get", "pods", "--selector=app=web", "--output=json"])?;
        let list: Value = serde_json::from_str(&said)?;
        let pods = list["items"].as_array().into_iter().flatten();
        let living =
            pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running");
        Ok(living.filter_map(|pod| pod["spec"]["nodeName"].as_str()).map(str::to_owned).collect())
    }

    /// How many join tokens the cluster has.
    pub fn tokens(&self) -> usize {
        let client = self.client();
        let path = "/api/v1/namespaces/kube-system/secrets?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken";
        let answer = client.wait(client.ask_api(Method::GET, path, None)).unwrap_or_else(|error| panic!("{error:#}"));
        let list: Value = answer.json().unwrap_or_else(|error| panic!("{error:#}"));
        list["items"].as_array().expect("a list of Secrets").len()
    }
}

impl Tenant<'_> {
    fn client(&self) -> Client {
        let lab = self.scenario.lab();
        let client = lab.kubeconfig().and_then(|file| Client::from_inside(&file, lab.network_namespace()));
        client.unwrap_or_else(|error| panic!("{error:#}"))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is right").as_secs()
}

/// A command that goes on. It ends with the scenario at the latest.
pub struct TenantCommand<'a> {
    scenario: &'a Scenario,
    arguments: Vec<&'a str>,
    running: Running,
}

impl TenantCommand<'_> {
    /// Waits for its end, and gives what it prints.
    pub fn ends(self) -> Value {
        let (output, took) = self.running.ends();
        let said = told(&self.arguments, &output, 0);
        self.scenario.reached(&format!("kaas-dev lab tenant {} took {} s", self.arguments.join(" "), took.as_secs()));
        said
    }
}

fn told(arguments: &[&str], output: &Output, expected: i32) -> Value {
    let failed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "kaas-dev lab tenant {}: {failed}", arguments.join(" "));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{}: {error}", arguments.join(" ")))
}
