//! Rules and restart priorities, with scripted answers.

use super::*;
use crate::fake::{Fake, object, page, reference, service_content, success};
use crate::guard::Unguarded;

fn cluster() -> MoRef {
    MoRef::new("ClusterComputeResource", "domain-c1")
}

fn vms(ids: &[&str]) -> Vec<MoRef> {
    ids.iter().map(|id| MoRef::vm(*id)).collect()
}

async fn configured(configuration: &str) -> (Fake, Client) {
    let (fake, client) = Fake::connected().await;
    fake.says(
        "RetrievePropertiesEx",
        &page(&object("ClusterComputeResource", "domain-c1", &[("configurationEx", configuration)]), None),
    );
    fake.runs("ReconfigureComputeResource_Task", [success("")]);
    (fake, client)
}

fn rule(name: &str, enabled: bool) -> String {
    let vms = [reference("vm", "VirtualMachine", "vm-1"), reference("vm", "VirtualMachine", "vm-2")].concat();
    let affinity = format!("<rule xsi:type=\"ClusterAffinityRuleSpec\"><key>3</key><name>{name}</name>{vms}</rule>");
    format!(
        "{affinity}<rule xsi:type=\"ClusterAntiAffinityRuleSpec\"><key>7</key><enabled>{enabled}</enabled><name>{name}</name><mandatory>false</mandatory>{vms}</rule>"
    )
}

#[tokio::test]
async fn a_rule_is_created_once_and_updated() {
    let mut asked = Vec::new();
    for (present, wanted, changed) in [
        (String::new(), vms(&["vm-1", "vm-2"]), true),
        (rule("apart", true), vms(&["vm-2", "vm-1"]), false),
        (rule("apart", false), vms(&["vm-1", "vm-2"]), true),
        (rule("apart", true), vms(&["vm-1", "vm-3"]), true),
        (rule("of others", true), vms(&["vm-1", "vm-2"]), true),
    ] {
        let (fake, client) = configured(&present).await;
        assert_eq!(client.changes(&Unguarded).keep_apart(&cluster(), "apart", &wanted).await.unwrap(), changed);
        asked.extend(fake.asked("ReconfigureComputeResource_Task").iter().map(|asked| asked.call()));
    }
    insta::assert_snapshot!(asked.join("\n\n"));
}

#[tokio::test]
async fn a_rule_is_removed_by_its_name() {
    let (fake, client) = configured(&rule("apart", true)).await;
    assert!(!client.changes(&Unguarded).remove_rule(&cluster(), "of others").await.unwrap());
    assert!(client.changes(&Unguarded).remove_rule(&cluster(), "apart").await.unwrap());
    let asked = fake.asked("ReconfigureComputeResource_Task");
    assert_eq!(asked.len(), 1);
    insta::assert_snapshot!(asked[0].call());
}

#[tokio::test]
async fn a_restart_priority_is_set_changed_and_removed() {
    let said = |priority: &str| {
        let key = reference("key", "VirtualMachine", "vm-1");
        format!(
            "<dasVmConfig>{key}<dasSettings><restartPriority>{priority}</restartPriority></dasSettings></dasVmConfig>"
        )
    };
    let mut asked = Vec::new();
    for (present, wanted, changed) in [
        (String::new(), Some(RestartPriority::High), true),
        (String::new(), None, false),
        (said("high"), Some(RestartPriority::High), false),
        (said("high"), Some(RestartPriority::Disabled), true),
        (said("disabled"), None, true),
    ] {
        let (fake, client) = configured(&present).await;
        let changes = client.changes(&Unguarded);
        assert_eq!(changes.set_restart_priority(&cluster(), &MoRef::vm("vm-1"), wanted).await.unwrap(), changed);
        asked.extend(fake.asked("ReconfigureComputeResource_Task").iter().map(|asked| asked.call()));
    }
    insta::assert_snapshot!(asked.join("\n\n"));
    let (_fake, client) = configured(&said("disabled")).await;
    assert_eq!(client.restart_priority(&cluster(), &MoRef::vm("vm-1")).await.unwrap(), Some(RestartPriority::Disabled));
    assert_eq!(client.restart_priority(&cluster(), &MoRef::vm("vm-2")).await.unwrap(), None);
    let (_fake, client) = configured(&said("clusterRestartPriority")).await;
    assert_eq!(client.restart_priority(&cluster(), &MoRef::vm("vm-1")).await.unwrap(), None);
}

#[tokio::test]
async fn other_overrides_of_a_vm_stay() {
    let key = reference("key", "VirtualMachine", "vm-1");
    let others = "<isolationResponse>shutdown</isolationResponse><vmToolsMonitoringSettings><enabled>false</enabled></vmToolsMonitoringSettings>";
    let said = |priority: &str| {
        let settings = format!("<restartPriority>{priority}</restartPriority>{others}");
        format!("<dasVmConfig>{key}<dasSettings>{settings}</dasSettings></dasVmConfig>")
    };
    let none = format!("<dasVmConfig>{key}<dasSettings>{others}</dasSettings></dasVmConfig>");
    let high = Some(RestartPriority::High);
    for (present, wanted, sent) in [
        (said("disabled"), high, Some("high")),
        (none.clone(), high, Some("high")),
        (said("disabled"), None, Some("clusterRestartPriority")),
        (said("clusterRestartPriority"), None, None),
        (none, None, None),
    ] {
        let (fake, client) = configured(&present).await;
        let changes = client.changes(&Unguarded);
        let is_changed = changes.set_restart_priority(&cluster(), &MoRef::vm("vm-1"), wanted).await.unwrap();
        assert_eq!(is_changed, sent.is_some(), "{present}");
        let asked = fake.asked("ReconfigureComputeResource_Task").iter().map(|asked| asked.call()).collect::<String>();
        let asked = asked.replace('\n', "");
        if let Some(priority) = sent {
            assert!(asked.contains("<operation>edit</operation>"), "{asked}");
            assert!(
                asked.contains(&format!("<dasSettings><restartPriority>{priority}</restartPriority>{others}")),
                "{asked}"
            );
        }
    }
}

#[tokio::test]
async fn an_override_that_only_names_defaults_is_removed() {
    let key = reference("key", "VirtualMachine", "vm-1");
    let [tools, own_tools] = ["true", "false"].map(|of_cluster| {
        format!(
            "<vmToolsMonitoringSettings><clusterSettings>{of_cluster}</clusterSettings><failureInterval>30</failureInterval>\
             </vmToolsMonitoringSettings>"
        )
    });
    let [protection, own_protection] = ["clusterDefault", "warning"].map(|reaction| {
        format!(
            "<vmComponentProtectionSettings><vmStorageProtectionForAPD>{reaction}</vmStorageProtectionForAPD>\
             <enableAPDTimeoutForHosts>false</enableAPDTimeoutForHosts><vmTerminateDelayForAPDSec>-1</vmTerminateDelayForAPDSec>\
             <vmReactionOnAPDCleared>useClusterDefault</vmReactionOnAPDCleared></vmComponentProtectionSettings>"
        )
    });
    let defaults = "<restartPriorityTimeout>-1</restartPriorityTimeout><isolationResponse>clusterIsolationResponse</isolationResponse>";
    for (others, operation) in [
        (format!("{defaults}{tools}{protection}"), "remove"),
        ("<restartPriorityTimeout>600</restartPriorityTimeout>".to_owned(), "edit"),
        (format!("{defaults}{own_tools}{protection}"), "edit"),
        (format!("{defaults}{tools}{own_protection}"), "edit"),
    ] {
        let settings = format!("<dasSettings><restartPriority>disabled</restartPriority>{others}</dasSettings>");
        let said = format!("<dasVmConfig>{key}<restartPriority>disabled</restartPriority>{settings}</dasVmConfig>");
        let (fake, client) = configured(&said).await;
        assert!(client.changes(&Unguarded).set_restart_priority(&cluster(), &MoRef::vm("vm-1"), None).await.unwrap());
        let asked = fake.asked("ReconfigureComputeResource_Task")[0].call();
        assert!(asked.contains(&format!("<operation>{operation}</operation>")), "{others}: {asked}");
        // The deprecated setting is not sent in addition to the new one.
        assert!(!asked.contains("disabled"), "{asked}");
    }
}

#[tokio::test]
async fn accounts_with_read_access_see_disabled_drs() {
    for (configuration, lacks) in [
        ("<drsConfig><enabled>true</enabled></drsConfig>", false),
        ("<drsConfig><enabled>false</enabled></drsConfig>", true),
        ("<drsConfig></drsConfig>", false),
        ("", false),
    ] {
        let (_fake, client) = configured(configuration).await;
        assert_eq!(client.lacks_drs(&cluster()).await.unwrap(), lacks, "{configuration}");
    }
    let (fake, client) = configured("").await;
    fake.says("RetrievePropertiesEx", &page(&object("ClusterComputeResource", "domain-c1", &[]), None));
    let error = client.lacks_drs(&cluster()).await.unwrap_err();
    assert!(error.lacks_privilege() && error.to_string().contains("System.Read on the cluster"), "{error}");
}

#[tokio::test]
async fn clones_need_no_host_since_version_9() {
    for (version, takes_any) in [("7.0.3.0", false), ("8.0.3.0", false), ("9.0.0.0", true), ("10.0.0.0", true)] {
        let fake = Fake::start().await;
        fake.says("RetrieveServiceContent", &service_content("VirtualCenter", version));
        assert_eq!(fake.client().await.clones_to_any_host(), takes_any, "{version}");
    }
}
