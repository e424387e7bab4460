//! The examples of how other tools import the OVA. Each can be read by its tool and uses only names that the tool and the OVA
//! have. Each fills in a form that a node accepts. The tools themselves are not run here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use contract::form::{self, SecretNeed};
use contract::properties;
use contract::role::Role;
use hcl::eval::{Context, Evaluate, FuncArgs, FuncDef, ParamType};
use hcl::expr::ObjectKey;
use hcl::{Block, Body, Expression};
use serde_json::{Value, json};

const GOVC: &str = include_str!("../../docs/examples/cp1.json");
const ANSIBLE: &str = include_str!("../../docs/examples/import.yml");
const TERRAFORM: &str = include_str!("../../docs/examples/import.tf");
/// The spec from which an image's OVA is built.
const IMAGE: &str = include_str!("../../image/specs/common.toml");

/// An output of `openssl rand -hex 16`. No example contains it.
const SECRET: &str = "3769e064b33545f410344b0da3a41033";

/// The form of one node.
type Form = BTreeMap<String, String>;

/// The network that the OVA names.
fn network() -> String {
    let line = IMAGE.lines().find_map(|line| line.strip_prefix("network = "));
    line.expect("the image's network").trim_matches('"').to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn object(value: &Value) -> &serde_json::Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object"))
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    object(value).iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Fails unless a control-plane node accepts the form unchanged.
fn is_accepted(form: &Form, tool: &str) {
    for key in form.keys() {
        let known = properties::find(key);
        assert!(known.is_some_and(|property| property.asked_for(&Role::ControlPlane.into())), "{tool}: {key}");
    }
    let told = |property: &properties::Property| Ok(form.get(property.key).map(String::as_str));
    let (draft, mut findings) = form::read(&told, &Role::ControlPlane.into(), SecretNeed::Needed);
    findings.extend(form::all(&draft, &["1.36".to_owned()], SystemTime::now()));
    let said: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
    assert!(said.is_empty(), "{tool}: {form:?}\n{}", said.join("\n"));
}

/// The same for all nodes of a cluster: each has its own form, and all forms have the same list of nodes.
fn are_accepted(forms: &[Form], tool: &str) {
    assert_eq!(forms.len(), 3, "{tool}");
    for key in [properties::NODE_NAME, properties::ADDRESS] {
        let values: BTreeSet<&String> = forms.iter().map(|form| &form[key]).collect();
        assert_eq!(values.len(), forms.len(), "{tool}: {key}");
    }
    let lists: BTreeSet<&String> = forms.iter().map(|form| &form[properties::CONTROL_NODES]).collect();
    assert_eq!(lists.len(), 1, "{tool}: {lists:?}");
    forms.iter().for_each(|form| is_accepted(form, tool));
}

#[test]
fn node_accepts_the_form_from_govc() {
    let options: Value = serde_json::from_str(GOVC).unwrap();
    // The keys of `importer.Options` in govmomi.
    let known = ["Deployment", "DiskProvisioning", "NetworkMapping", "PropertyMapping"];
    assert!(object(&options).keys().all(|key| known.contains(&key.as_str())), "{options}");
    let networks = options["NetworkMapping"].as_array().unwrap();
    assert_eq!(networks.iter().map(|mapped| text(&mapped["Name"])).collect::<Vec<_>>(), [network()]);
    let given = options["PropertyMapping"].as_array().unwrap();
    let mut form: Form = given.iter().map(|given| (text(&given["Key"]), text(&given["Value"]))).collect();
    assert_eq!(form.len(), given.len(), "a property is given twice");
    let placeholder = form.insert(properties::DEPLOYMENT_SECRET.to_owned(), SECRET.to_owned()).unwrap();
    assert!(placeholder.starts_with("REPLACE-"), "{placeholder}");
    is_accepted(&form, "govc");
}

/// The arguments of `community.vmware.vmware_deploy_ovf` (version 5), those of each module of the collection last.
const MODULE: [&str; 24] = [
    "allow_duplicates",
    "cluster",
    "datacenter",
    "datastore",
    "deployment_option",
    "disk_provisioning",
    "enable_hidden_properties",
    "esxi_hostname",
    "fail_on_spec_warnings",
    "folder",
    "inject_ovf_env",
    "name",
    "networks",
    "ova",
    "power_on",
    "properties",
    "resource_pool",
    "wait",
    "wait_for_ip_address",
    "hostname",
    "password",
    "port",
    "username",
    "validate_certs",
];

/// The expression with which a playbook lists its nodes. This test computes the result that a run of Ansible has shown.
const LIST: &str =
    "{{ nodes | map(attribute='name') | zip(nodes | map(attribute='address')) | map('join', '=') | join(',') }}";

#[test]
fn node_accepts_the_form_from_ansible() {
    let plays: Value = serde_saphyr::from_str(ANSIBLE).unwrap();
    let [play] = plays.as_array().unwrap().as_slice() else { panic!("several plays") };
    let [task] = play["tasks"].as_array().unwrap().as_slice() else { panic!("several tasks") };
    let module = &task["community.vmware.vmware_deploy_ovf"];
    let unknown: Vec<_> = object(module).keys().filter(|key| !MODULE.contains(&key.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(object(&module["networks"]).keys().collect::<Vec<_>>(), [&network()]);
    assert_eq!(text(&task["loop"]), "{{ nodes }}");
    assert_eq!((&task["no_log"], &module["power_on"]), (&json!(true), &json!(true)));
    assert!(text(&play["vars"]["secret"]).contains("'DEPLOYMENT_SECRET'"));
    let nodes: Vec<_> = play["vars"]["nodes"].as_array().unwrap().iter().map(texts).collect();
    let list: Vec<String> = nodes.iter().map(|node| format!("{}={}", node["name"], node["address"])).collect();
    let filled = |value: String, item: &BTreeMap<String, String>| {
        let mut value = value.replace(LIST, &list.join(",")).replace("{{ secret }}", SECRET);
        for (key, said) in item {
            value = value.replace(&format!("{{{{ item.{key} }}}}"), said);
        }
        assert!(!value.contains("{{"), "{value}");
        value
    };
    let form = |item| texts(&module["properties"]).into_iter().map(|(key, value)| (key, filled(value, item))).collect();
    are_accepted(&nodes.iter().map(form).collect::<Vec<Form>>(), "Ansible");
    assert_eq!(
        nodes.iter().map(|node| filled(text(&module["name"]), node)).collect::<BTreeSet<_>>().len(),
        nodes.len()
    );
}

/// The arguments that the example uses, from the documentation of the provider `vmware/vsphere` (version 2): required ones,
/// then optional ones. A block within another is named after both.
const ARGUMENTS: [(&str, &[&str], &[&str]); 11] = [
    ("vsphere_datacenter", &[], &["name"]),
    ("vsphere_compute_cluster", &["name"], &["datacenter_id"]),
    ("vsphere_host", &["datacenter_id"], &["name"]),
    ("vsphere_datastore", &["name"], &["datacenter_id"]),
    ("vsphere_network", &["name"], &["datacenter_id", "distributed_virtual_switch_uuid", "filter"]),
    ("vsphere_ovf_vm_template", &["name", "resource_pool_id", "host_system_id"], &OF_AN_OVF),
    ("vsphere_virtual_machine", &["name", "resource_pool_id"], &OF_A_VM),
    ("vsphere_virtual_machine.network_interface", &["network_id"], &["adapter_type", "ovf_mapping"]),
    ("vsphere_virtual_machine.ovf_deploy", &[], &OF_AN_OVF),
    ("vsphere_virtual_machine.vapp", &[], &["properties"]),
    ("vsphere_virtual_machine.cdrom", &[], &["client_device", "datastore_id", "path"]),
];
const OF_AN_OVF: [&str; 11] = [
    "allow_unverified_ssl_cert",
    "datastore_id",
    "deployment_option",
    "disk_provisioning",
    "enable_hidden_properties",
    "folder",
    "ip_allocation_policy",
    "ip_protocol",
    "local_ovf_path",
    "ovf_network_map",
    "remote_ovf_url",
];
const OF_A_VM: [&str; 16] = [
    "datacenter_id",
    "datastore_id",
    "firmware",
    "folder",
    "guest_id",
    "hardware_version",
    "host_system_id",
    "memory",
    "num_cores_per_socket",
    "num_cpus",
    "scsi_controller_count",
    "scsi_type",
    "wait_for_guest_ip_timeout",
    "wait_for_guest_net_timeout",
    "annotation",
    "enable_disk_uuid",
];
/// The arguments that Terraform itself knows in each resource.
const OF_ANY: [&str; 5] = ["count", "depends_on", "for_each", "lifecycle", "provider"];

/// The attributes of looked-up objects, in addition to their arguments and `id`.
const LOOKED_UP: [(&str, &[&str]); 2] = [
    ("vsphere_compute_cluster", &["resource_pool_id"]),
    (
        "vsphere_ovf_vm_template",
        &["num_cpus", "num_cores_per_socket", "memory", "guest_id", "firmware", "scsi_type", "annotation"],
    ),
];

fn label(block: &Block, at: usize) -> &str {
    block.labels().get(at).unwrap_or_else(|| panic!("{block:?}")).as_str()
}

/// The blocks of this kind.
fn blocks<'b>(body: &'b Body, kind: &'static str) -> impl Iterator<Item = &'b Block> {
    body.blocks().filter(move |block| block.identifier() == kind)
}

fn attribute<'b>(body: &'b Body, key: &str) -> Option<&'b Expression> {
    body.attributes().find(|attribute| attribute.key() == key).map(|attribute| attribute.expr())
}

/// Fails unless all arguments of a block and of its inner blocks are known, and all required ones are given.
fn is_known(name: &str, body: &Body) {
    let row = ARGUMENTS.iter().find(|(known, ..)| *known == name);
    let (_, required, optional) = row.unwrap_or_else(|| panic!("{name} is not in the provider's documentation"));
    for given in body.attributes() {
        let known = required.iter().chain(*optional).chain(&OF_ANY).any(|known| given.key() == *known);
        assert!(known, "{name} has no {}", given.key());
    }
    let missing: Vec<_> = required.iter().filter(|key| attribute(body, key).is_none()).collect();
    assert!(missing.is_empty(), "{name} lacks {missing:?}");
    for block in body.blocks().filter(|block| !OF_ANY.contains(&block.identifier())) {
        is_known(&format!("{name}.{}", block.identifier()), block.body());
    }
}

#[test]
fn terraform_provider_has_the_examples_arguments() {
    let example: Body = hcl::parse(TERRAFORM).unwrap();
    let mut names = BTreeSet::new();
    for block in blocks(&example, "data").chain(blocks(&example, "resource")) {
        is_known(label(block, 0), block.body());
        names.insert((label(block, 0), label(block, 1)));
    }
    assert!(names.len() > 6, "{names:?}");
    // Each looked-up object is declared, and has the used attributes.
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    let words = TERRAFORM.split(|c: char| !is_part(c)).filter_map(|word| word.strip_prefix("data."));
    for word in words {
        let [kind, name, key] = word.split('.').collect::<Vec<_>>()[..] else { panic!("data.{word}") };
        assert!(names.contains(&(kind, name)), "data.{word}: there is no such block");
        let argument =
            ARGUMENTS.iter().filter(|(known, ..)| *known == kind).flat_map(|(_, must, may)| must.iter().chain(*may));
        let looked_up = LOOKED_UP.iter().filter(|(known, _)| *known == kind).flat_map(|(_, keys)| keys.iter());
        assert!(key == "id" || argument.chain(looked_up).any(|known| *known == key), "data.{word}");
    }
    let template = blocks(&example, "data").find(|block| label(block, 0) == "vsphere_ovf_vm_template").unwrap();
    let Some(Expression::Object(map)) = attribute(template.body(), "ovf_network_map") else { panic!("no map") };
    let mapped: Vec<&ObjectKey> = map.keys().collect();
    assert_eq!(mapped, [&ObjectKey::Expression(Expression::String(network()))]);
}

/// `join` of Terraform's language.
fn join(arguments: FuncArgs) -> Result<hcl::Value, String> {
    let words = arguments[1].as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default());
    Ok(hcl::Value::from(words.collect::<Vec<_>>().join(arguments[0].as_str().unwrap_or_default())))
}

#[test]
fn node_accepts_the_form_from_terraform() {
    let example: Body = hcl::parse(TERRAFORM).unwrap();
    let mut variables = hcl::Map::new();
    for variable in blocks(&example, "variable") {
        let value = match attribute(variable.body(), "default") {
            Some(default) => default.evaluate(&Context::new()).unwrap(),
            None => {
                assert_eq!(attribute(variable.body(), "sensitive"), Some(&Expression::Bool(true)), "{variable:?}");
                hcl::Value::from(SECRET)
            }
        };
        variables.insert(label(variable, 0).to_owned(), value);
    }
    let mut context = Context::new();
    context.declare_var("var", hcl::Value::Object(variables));
    let of_texts = ParamType::array_of(ParamType::String);
    context.declare_func("join", FuncDef::builder().param(ParamType::String).param(of_texts).build(join));
    let resource = blocks(&example, "resource").next().unwrap();
    let hcl::Value::Object(each) = attribute(resource.body(), "for_each").unwrap().evaluate(&context).unwrap() else {
        panic!("a map")
    };
    let vapp = blocks(resource.body(), "vapp").next().unwrap();
    let form = |(key, value): (&String, &hcl::Value)| {
        let mut context = context.clone();
        let one = [("key".to_owned(), hcl::Value::from(key.clone())), ("value".to_owned(), value.clone())];
        context.declare_var("each", hcl::Value::Object(one.into_iter().collect()));
        let given = attribute(vapp.body(), "properties").unwrap().evaluate(&context).unwrap();
        let name = attribute(resource.body(), "name").unwrap().evaluate(&context).unwrap();
        let form = texts(&serde_json::to_value(given).unwrap());
        assert_eq!(name.as_str(), Some(form[properties::NODE_NAME].as_str()));
        form
    };
    are_accepted(&each.iter().map(form).collect::<Vec<Form>>(), "Terraform");
}
