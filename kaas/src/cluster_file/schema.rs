//! The JSON Schema of the file, by which editors complete keys and underline mistakes: what keys there are, of which kinds, and
//! what each is for. What the values mean together is judged by the commands themselves, which say more.
//!
//! Source of the words: JSON Schema draft 7, which editors of TOML take.

use contract::properties;
use contract::role::Role;
use serde_json::{Map, Value, json};

use super::file::is_filled_in;

/// A key of a table, and whether it has to be there.
struct Key {
    name: &'static str,
    required: bool,
    value: Value,
}

fn key(name: &'static str, value: Value) -> Key {
    Key { name, required: true, value }
}

fn may(name: &'static str, value: Value) -> Key {
    Key { name, required: false, value }
}

fn text(what: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "description": what })
}

fn texts(what: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string", "minLength": 1 }, "uniqueItems": true, "description": what })
}

fn one_of(what: &str, words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words, "description": what })
}

fn number(what: &str, least: u32, most: u32) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "description": what })
}

/// A value that comes from elsewhere.
fn source(what: &str) -> Value {
    json!({ "$ref": "#/definitions/source", "description": what })
}

fn table(what: &str, keys: Vec<Key>) -> Value {
    let required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let keys: Map<String, Value> = keys.into_iter().map(|key| (key.name.to_owned(), key.value)).collect();
    json!({
        "type": "object", "description": what, "properties": keys, "required": required, "additionalProperties": false,
    })
}

/// What nodes are told: the properties of a control node that the rest of the file does not say.
fn told(what: &str) -> Value {
    let told = properties::table().iter();
    let told = told.filter(|property| property.need(Role::ControlPlane).is_some() && !is_filled_in(property.key));
    let told = told.map(|property| {
        let of = if property.secret() { "#/definitions/source" } else { "#/definitions/value" };
        (property.key.to_owned(), json!({ "$ref": of, "description": property.description }))
    });
    let told: Map<String, Value> = told.collect();
    json!({ "type": "object", "description": what, "properties": told, "additionalProperties": false })
}

fn cluster() -> Value {
    table(
        "The cluster, and where what belongs to it is kept. Paths are relative to the file.",
        vec![
            key(
                "name",
                text("The cluster's name, a DNS label: in kubeconfig files, and typed before it is destroyed."),
            ),
            key("ova", text("The OVA that the VMs are made from, or a directory with one.")),
            may("publisher", text("The publisher's certificate or public key: the OVA must be signed with it.")),
            may("deployer-key", text("Your private key, drawn when it is not there; NAME.key if it is not said.")),
            may("kubeconfig", text("Where the kubeconfig is put; NAME.kubeconfig if it is not said.")),
            may(
                "snapshots",
                text("The directory where upgrades keep snapshots of etcd; NAME.snapshots if it is not said."),
            ),
            may(
                "deployment-secret",
                source(
                    "Proves to the control nodes that they belong together; the file NAME.secret if it is not said.",
                ),
            ),
        ],
    )
}

fn size() -> Value {
    table(
        "How large each control node's VM is.",
        vec![
            key("processors", number("Virtual processors.", 1, 128)),
            key("memory-mib", number("Memory in MiB.", 1024, 4_194_304)),
            key("data-disk-gib", number("The data disk in GiB.", 4, 63_488)),
        ],
    )
}

fn node() -> Value {
    table(
        "A control node.",
        vec![
            key("name", text("Its name, which is that of its VM, too.")),
            key("address", text("Its address with the prefix length of its subnet, such as 10.20.30.11/24.")),
            may("properties", told("What this node alone is told, by the properties' keys.")),
        ],
    )
}

fn vsphere() -> Value {
    table(
        "A vCenter. But for the data center, names are paths below it as vSphere Client shows them.",
        vec![
            key("server", text("Host name or address, with a port if it is not 443.")),
            may(
                "ca-file",
                text("The authorities, in PEM, by one of which the vCenter proves itself; not beside thumbprint."),
            ),
            may("thumbprint", text("SHA-256 of the vCenter's certificate; not beside ca-file.")),
            key("user", text("The account; `kaas provider role` prints what it has to be permitted.")),
            key("password", source("Where its password comes from.")),
            key("datacenter", text("The data center: its name, or folder/name.")),
            key("cluster", text("The cluster that VMs run on.")),
            may("resource-pool", text("A resource pool of the cluster; its topmost one if it is not said.")),
            key("folder", text("The folder that VMs are put into; it has to be there.")),
            may("other-folders", texts("Folders that VMs of this cluster may be in as well.")),
            may("templates-folder", text("Where the image's template is laid; beside the VMs if it is not said.")),
            key("datastore", text("The datastore of VMs; of a datastore cluster one of its datastores.")),
            may(
                "journal",
                text("Where it is kept who may change the VMs; \"[DATASTORE] kaas/NAME\" if it is not said."),
            ),
            key("networks", texts("The networks, in the order of the image's adapters.")),
            may(
                "clones",
                one_of(
                    "System disks as differences to the template's (linked, the default), or copies of it.",
                    &["linked", "full"],
                ),
            ),
            may(
                "anti-affinity",
                json!({ "type": "boolean", "default": true, "description": "Keeps the nodes on different hosts." }),
            ),
            may(
                "restart-priority",
                one_of(
                    "When vSphere HA starts the nodes after a host has failed; as the cluster says if it is not said.",
                    &["low", "medium", "high", "highest"],
                ),
            ),
            may("storage-policy", text("The storage policy of new VMs and of all their disks, by its name.")),
            may("managed-by", text("The key of an extension of the vCenter, which is said to manage the VMs.")),
            may(
                "deployment",
                json!({ "type": "string", "format": "uuid", "description": "The deployment that VMs carry in kaas.stamp, where vCenter was installed anew, or journal or folder were moved or renamed." }),
            ),
            may(
                "limits",
                table(
                    "How much is asked of the vCenter.",
                    vec![
                        may("requests", number("Requests at once; 8 if it is not said.", 1, 64)),
                        may(
                            "task-minutes",
                            number("How long one task may take, in minutes; 30 if it is not said.", 1, 1440),
                        ),
                    ],
                ),
            ),
        ],
    )
}

fn lab() -> Value {
    table(
        "A lab of this machine.",
        vec![
            key("name", text("The lab's name.")),
            may("engine", one_of("What runs its nodes; container if it is not said.", &["container", "qemu"])),
            may("tools", text("A directory with programs of the lab, in place of its own.")),
        ],
    )
}

pub fn schema() -> Value {
    let of = |name: &str, what: &str| json!({ "type": "object", "properties": { name: text(what) }, "required": [name], "additionalProperties": false });
    let sources = [
        of("file", "A file that has the value."),
        of("environment", "A variable of the environment that has the value."),
        of("prompt", "What a person is asked, who types the value."),
    ];
    let mut provider = table("What runs the VMs: one of them.", vec![may("vsphere", vsphere()), may("lab", lab())]);
    (provider["minProperties"], provider["maxProperties"]) = (json!(1), json!(1));
    let nodes = json!({ "type": "array", "items": node(), "minItems": 1, "maxItems": 3, "description": "The control nodes, one or three." });
    let mut top = table(
        "A control cluster, as `kaas deploy` makes it.",
        vec![
            key("cluster", cluster()),
            key("vm", size()),
            key("node", nodes),
            may("properties", told("What all nodes are told, by the properties' keys.")),
            key("provider", provider),
        ],
    );
    top["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    top["title"] = json!("KaaS control cluster");
    top["definitions"] = json!({
        "source": { "oneOf": sources },
        "value": { "oneOf": [{ "type": "string" }, { "$ref": "#/definitions/source" }] },
    });
    top
}

#[cfg(test)]
#[path = "tests/schema.rs"]
mod tests;
