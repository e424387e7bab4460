//! The JSON Schema of the file, with which editors complete keys and mark mistakes. It has the keys, their types and
//! descriptions. The commands check what the values mean together, with better messages.
//!
//! Source: JSON Schema draft 7, which editors of TOML support.

use contract::properties;
use contract::role::Role;
use serde_json::{Map, Value, json};

use super::file::is_filled_in;
use super::provider::added_provider;

/// A key of a table, and whether it is required.
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

/// A value that comes from another source.
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

/// The properties of a control-plane node that do not come from other parts of the file.
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
        "The cluster and its files. Paths are relative to the file.",
        vec![
            key("name", text("The cluster's name, a DNS label: in kubeconfig files, and typed before it is deleted.")),
            key("ova", text("The OVA that the VMs are made from, or a directory with one.")),
            may("publisher", text("The publisher's certificate or public key: the OVA must be signed with it.")),
            may("deployer-key", text("Your private key, drawn if the file is missing. Default: NAME.key.")),
            may("kubeconfig", text("The file for the kubeconfig. Default: NAME.kubeconfig.")),
            may("snapshots", text("The directory where upgrades keep snapshots of etcd. Default: NAME.snapshots.")),
            may(
                "deployment-secret",
                source("Proves to the control-plane nodes that they belong together. Default: the file NAME.secret."),
            ),
        ],
    )
}

fn size() -> Value {
    table(
        "The size of each control-plane node's VM.",
        vec![
            key("processors", number("Virtual processors.", 1, 128)),
            key("memory-mib", number("Memory in MiB.", 1024, 4_194_304)),
            key("data-disk-gib", number("The data disk in GiB.", 4, 63_488)),
        ],
    )
}

fn node() -> Value {
    table(
        "A control-plane node.",
        vec![
            key("name", text("The name of the node and of its VM.")),
            key("address", text("Its address with the prefix length of its subnet, such as 10.20.30.11/24.")),
            may("properties", told("Properties of this node alone, by their keys.")),
        ],
    )
}

fn vsphere() -> Value {
    table(
        "A vCenter. All names except the data center's are paths below it as vSphere Client shows them.",
        vec![
            key("server", text("Host name or address, with a port if it is not 443.")),
            may(
                "ca-file",
                text("The CAs, in PEM, that verify the vCenter's certificate. Not together with thumbprint."),
            ),
            may("thumbprint", text("SHA-256 of the vCenter's certificate. Not together with ca-file.")),
            key("user", text("The account; `kaas provider role` prints the privileges that it needs.")),
            key("password", source("The source of its password.")),
            key("datacenter", text("The data center: its name, or folder/name.")),
            key("cluster", text("The cluster that VMs run on.")),
            may("resource-pool", text("A resource pool of the cluster. Default: its root resource pool.")),
            key("folder", text("The folder of the VMs. It must exist.")),
            may("other-folders", texts("Folders that VMs of this cluster may be in as well.")),
            may("templates-folder", text("The folder of the image's template. Default: the folder of the VMs.")),
            key("datastore", text("The datastore of VMs; of a datastore cluster one of its datastores.")),
            may("journal", text("The directory of lease and journal. Default: \"[DATASTORE] kaas/NAME\".")),
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
                    "When vSphere HA starts the nodes after a host has failed. Default: the cluster's setting.",
                    &["low", "medium", "high", "highest"],
                ),
            ),
            may("storage-policy", text("The storage policy of new VMs and of all their disks, by its name.")),
            may(
                "managed-by",
                text("The key of an extension of the vCenter, which vSphere Client shows as the manager of the VMs."),
            ),
            may(
                "deployment",
                json!({ "type": "string", "format": "uuid", "description": "The deployment that VMs carry in kaas.stamp, if vCenter was installed again, or journal or folder were moved or renamed." }),
            ),
            may(
                "limits",
                table(
                    "Limits of requests to the vCenter.",
                    vec![
                        may("requests", number("Requests at once. Default: 8.", 1, 64)),
                        may("task-minutes", number("How long one task may take, in minutes. Default: 30.", 1, 1440)),
                    ],
                ),
            ),
        ],
    )
}

pub fn schema() -> Value {
    let of = |name: &str, what: &str| json!({ "type": "object", "properties": { name: text(what) }, "required": [name], "additionalProperties": false });
    let sources = [
        of("file", "A file that has the value."),
        of("environment", "An environment variable that has the value."),
        of("prompt", "The text of the question for the operator, who types the value."),
    ];
    let mut providers = vec![may("vsphere", vsphere())];
    providers.extend(added_provider().map(|added| may(added.name, (added.schema)())));
    let mut provider = table("The provider that runs the VMs: one of them.", providers);
    (provider["minProperties"], provider["maxProperties"]) = (json!(1), json!(1));
    let nodes = json!({ "type": "array", "items": node(), "minItems": 1, "maxItems": 3, "description": "The control-plane nodes, one or three." });
    let mut top = table(
        "A control cluster, as `kaas control create` makes it.",
        vec![
            key("cluster", cluster()),
            key("vm", size()),
            key("node", nodes),
            may("properties", told("Properties of all nodes, by their keys.")),
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
mod tests;
