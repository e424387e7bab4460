//! Pages, lists and watches, with scripted answers.

use super::Watch;
use crate::fake::{Fake, Reply, object, page, reference, updates};
use crate::reference::MoRef;
use crate::treatment::Outcome;
use std::time::Duration;

const VIEW: &str = "<returnval type=\"ContainerView\">session[1]view-1</returnval>";

fn vm(number: u32) -> String {
    object("VirtualMachine", &format!("vm-{number}"), &[("name", &format!("n{number}"))])
}

fn folder() -> MoRef {
    MoRef::new("Folder", "group-v3")
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let (fake, client) = Fake::connected().await;
    fake.says("CreateContainerView", VIEW);
    fake.says("RetrievePropertiesEx", &page(&[vm(1), vm(2)].concat(), Some("t1")));
    let next = [page(&[vm(3), vm(4)].concat(), Some("t2")), page(&vm(5), None)].map(Reply::Response);
    fake.replies("ContinueRetrievePropertiesEx", next);
    let found = client.list(&folder(), &["VirtualMachine"], true, &["name", "parent"]).await.unwrap();
    let names: Vec<&str> = found.iter().map(|object| object.text("name")).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4", "n5"]);
    let asked: Vec<String> =
        ["CreateContainerView", "RetrievePropertiesEx", "ContinueRetrievePropertiesEx", "DestroyView"]
            .iter()
            .flat_map(|method| fake.asked(method))
            .map(|asked| asked.call())
            .collect();
    insta::assert_snapshot!(asked.join("\n\n"));
}

#[tokio::test]
async fn lists_of_ended_sessions_start_again() {
    let (fake, client) = Fake::connected().await;
    fake.says("CreateContainerView", VIEW);
    let ended = || Reply::Fault("NotAuthenticated", String::new());
    let first = || Reply::Response(page(&[vm(1), vm(2)].concat(), Some("t1")));
    fake.replies("RetrievePropertiesEx", [ended(), first()]);
    fake.replies("ContinueRetrievePropertiesEx", [ended(), Reply::Response(page(&vm(3), None))]);
    let found = client.list(&folder(), &["VirtualMachine"], false, &["name"]).await.unwrap();
    assert_eq!(found.len(), 3, "nothing is there twice");
    assert_eq!((fake.count("CreateContainerView"), fake.count("Login")), (3, 3));
    fake.replies("ContinueRetrievePropertiesEx", [ended()]);
    let error = client.list(&folder(), &["VirtualMachine"], false, &["name"]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Transient);
}

#[tokio::test]
async fn missing_objects_are_named_in_the_error() {
    let (fake, client) = Fake::connected().await;
    fake.says("CreateContainerView", VIEW);
    fake.says("RetrievePropertiesEx", "");
    assert!(client.list(&folder(), &["VirtualMachine"], true, &["name"]).await.unwrap().is_empty());
    assert!(client.look_at(&[], &["name"]).await.unwrap().is_empty());
    let error = client.look(&MoRef::vm("vm-9"), &["name"]).await.unwrap_err();
    assert_eq!((error.outcome(), error.to_string().contains("VirtualMachine vm-9")), (Outcome::NotFound, true));
    fake.replies(
        "RetrievePropertiesEx",
        [Reply::Fault("ManagedObjectNotFound", reference("obj", "VirtualMachine", "vm-9"))],
    );
    let error = client.look(&MoRef::vm("vm-9"), &["name"]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotFound);
    // A list that cannot be read is not an empty one.
    let error = client.list(&folder(), &["VirtualMachine"], true, &["name"]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotFound);
    assert_eq!(fake.count("DestroyView"), 2);
}

#[tokio::test]
async fn a_watch_rereads_after_lost_updates() {
    let (fake, client) = Fake::connected().await;
    fake.runs("none", []);
    let powered =
        |state: &str| Reply::Response(updates("1", "VirtualMachine", "vm-1", &[("runtime.powerState", state)]));
    // The second wait ends without an update, the third without an answer.
    fake.replies(
        "WaitForUpdatesEx",
        [powered("poweredOn"), Reply::Response(String::new()), Reply::Cut, powered("suspended")],
    );
    let read = page(&object("VirtualMachine", "vm-1", &[("runtime.powerState", "poweredOff")]), None);
    fake.says("RetrievePropertiesEx", &read);
    let mut watch = Watch::new(&client, MoRef::vm("vm-1"), &["runtime.powerState"]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(watch.next(Duration::from_secs(9)).await.unwrap().text("runtime.powerState").to_owned());
    }
    assert_eq!(seen, ["poweredOn", "poweredOff", "poweredOff", "suspended"]);
    assert_eq!(fake.count("CreatePropertyCollector"), 2, "after an error it begins anew");
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        fake.asked("CreateFilter")[0].call(),
        fake.asked("WaitForUpdatesEx")[1].call()
    ));
    watch.close().await;
    let left = Watch::new(&client, MoRef::vm("vm-1"), &["runtime.powerState"]);
    drop(left);
    let mut abandoned = Watch::new(&client, MoRef::vm("vm-1"), &["runtime.powerState"]);
    abandoned.next(Duration::ZERO).await.unwrap();
    drop(abandoned);
    fake.arrived("DestroyPropertyCollector", 2).await;
}
