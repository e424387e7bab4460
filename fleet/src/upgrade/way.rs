//! The steps left in a direction: forward as planned, back from any point, to the commit, or to an end where it is.

use super::entry::Direction;
use super::order::Order;
use super::plan::{Action, Mode, Plan, Step};
use super::progress::Progress;

impl Progress {
    /// The steps of the way that it goes.
    pub fn steps(&self, plan: &Plan) -> Vec<Step> {
        match self.direction {
            Direction::Forward => plan.steps.clone(),
            Direction::Back => self.back(plan),
            Direction::Commit => commit(plan),
            Direction::Abandon => (0..plan.nodes.len()).map(|node| Step::of(Action::Keep, node)).collect(),
        }
    }

    /// The rollback from any point of the way forward. Each node that was touched gets its old VM back, with the data
    /// disk as it is now. Steps look first, so one that a crash hid is not missed, and one that was not taken is not
    /// undone.
    fn back(&self, plan: &Plan) -> Vec<Step> {
        let of = |nodes: Vec<usize>| -> Vec<Step> {
            let steps = |node| self.back_of(plan, node).iter().map(move |action| Step::of(*action, node));
            nodes.into_iter().flat_map(steps).collect()
        };
        // The node that was touched last comes first: it may be unhealthy.
        let goes = |node: &usize| self.only.is_none_or(|only| only == *node) && !self.left_out.contains(node);
        let nodes = (0..plan.nodes.len()).rev().filter(goes);
        let (together, rest): (Vec<usize>, Vec<usize>) = nodes.partition(|node| self.goes_together(plan, *node));
        let is_ill = |node: &usize| self.order.ill().is_some_and(|ill| ill.one_by_one.contains(node));
        let (ill, well): (Vec<usize>, Vec<usize>) = rest.into_iter().partition(is_ill);
        // All off, all on: alone, an old member of etcd would wait for the others in vain. A VM that is off anyway does
        // not wait until the others are stopped. A node that only has to withdraw its swap may need etcd for that.
        let is_off = |step: &Step| {
            step.node.is_some_and(|node| {
                self.is_done(Step::of(Action::ShutDown, node)) && !self.is_begun(Step::of(Action::PowerOn, node))
            })
        };
        let mut steps = of(together);
        steps.sort_by_key(|step| {
            let (withdraws, gates) = (step.action == Action::Cancel, step.action >= Action::GateOld);
            (gates, withdraws, !is_off(step), step.action)
        });
        steps.extend(of(ill));
        steps.extend(of(well));
        steps
    }

    /// Whether a node goes back with others, all off and all on.
    fn goes_together(&self, plan: &Plan, node: usize) -> bool {
        self.is_at_once(plan) || self.order.ill().is_some_and(|ill| ill.together.contains(&node))
    }

    /// Whether all nodes are off at once in the present direction.
    pub fn is_at_once(&self, plan: &Plan) -> bool {
        plan.options.mode == Mode::AllAtOnce || matches!(self.order, Order::AtOnce | Order::WithoutQuorum)
    }

    /// Whether a new VM was stopped in a rollback.
    pub(super) fn has_stopped_new(&self, plan: &Plan) -> bool {
        (0..plan.nodes.len()).any(|node| self.is_done(Step::of(Action::StopNew, node)))
    }

    /// Whether the rest of the rollback would differ in this order.
    pub fn is_other_order(&self, plan: &Plan, order: &Order) -> bool {
        let left = |progress: &Self| -> Vec<Step> {
            progress.back(plan).into_iter().filter(|step| !self.is_done(*step)).collect()
        };
        let mut other = self.clone();
        other.order = order.clone();
        left(self) != left(&other) || self.is_at_once(plan) != other.is_at_once(plan)
    }

    /// The nodes that go back, or would, and are not back yet: the one that was touched last comes first.
    pub fn going_back(&self, plan: &Plan) -> Vec<usize> {
        let is_left =
            |node: usize| self.back_of(plan, node).iter().any(|action| !self.is_done(Step::of(*action, node)));
        (0..plan.nodes.len()).rev().filter(|node| is_left(*node) && !self.left_out.contains(node)).collect()
    }

    /// The nodes whose rollback needs their old VM.
    pub fn needs_old(&self, plan: &Plan, only: Option<usize>) -> Vec<usize> {
        let needs = |node: &usize| {
            let touched = [Action::Prepare, Action::ShutDown].map(|action| Step::of(action, *node));
            only.is_none_or(|only| only == *node) && touched.into_iter().any(|step| self.is_begun(step))
        };
        let is_none_of_it = |node: &usize| self.is_replaced(*node) || self.left_out.contains(node);
        (0..plan.nodes.len()).filter(needs).filter(|node| !is_none_of_it(node)).collect()
    }

    pub(super) fn back_of(&self, plan: &Plan, node: usize) -> &'static [Action] {
        use Action::{
            AttachOld, Cancel, DestroyNew, DetachNew, EvacuateNew, FenceNew, GateOld, PowerOnOld, ReconnectOld,
            StopNew, StopOld,
        };
        const PREPARED: &[Action] = &[
            EvacuateNew,
            StopOld,
            StopNew,
            FenceNew,
            DetachNew,
            AttachOld,
            ReconnectOld,
            PowerOnOld,
            GateOld,
            DestroyNew,
        ];
        let begun = |action| self.is_begun(Step::of(action, node));
        if begun(Action::ShutDown) {
            if self.is_at_once(plan) { &PREPARED[1..] } else { PREPARED }
        } else if begun(Action::Prepare) {
            &[Cancel, GateOld, DestroyNew]
        } else if begun(Action::CloneVm) {
            &[DestroyNew]
        } else {
            &[]
        }
    }
}

fn commit(plan: &Plan) -> Vec<Step> {
    let each = |action| (0..plan.nodes.len()).map(move |node| Step::of(action, node));
    let steps = [Step::whole(Action::Check)].into_iter().chain(each(Action::Commit)).chain(each(Action::DestroyOld));
    steps.chain(each(Action::DeleteCopy).filter(|_| plan.options.copy_disks)).collect()
}
