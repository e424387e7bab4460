//! Commands that change VMs outside an upgrade learn whether it has ended.

use super::command::{end, give};
use super::failing::before;
use crate::upgrade::{Action, OpenUpgrade, Outcome, Request, Step};

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_open_until_nothing_can_follow() {
    let world = before(1, Step::of(Action::PowerOn, 0)).await;
    let open = OpenUpgrade::find(&world).await.unwrap().unwrap();
    let made = [world.old_vm("cp1"), world.new_vm("cp1")].map(|vm| open.made(&vm.stamp.unwrap()));
    assert_eq!((open.upgraded, made), (false, [false, true]));
    give(&world, Request::Resume).await;
    assert!(OpenUpgrade::find(&world).await.unwrap().unwrap().upgraded);
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
    assert_eq!(OpenUpgrade::find(&world).await.unwrap(), None);
}
