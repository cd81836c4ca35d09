//! Reads: what is there, found in every way.

use std::sync::Arc;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::Status;
use coolant_core::lifecycle::Event;
use coolant_core::names::JobType;
use coolant_core::store::{JobFilter, NewJob, Page, Start};
use coolant_core::view::Phase;

use super::Subject;
use super::kit::*;

pub(super) async fn jobs_come_in_the_order_asked(s: Subject) {
    s.submit_all(vec![job(1), job(2), job(3)]).await;
    let found = s.store.jobs(&[id(3), id(9), id(1), id(3)]).await.unwrap();
    let found: Vec<_> = found.iter().map(|record| record.as_ref().map(|record| record.job.id)).collect();
    assert_eq!(found, [Some(id(3)), None, Some(id(1)), Some(id(3))]);
    assert!(s.store.jobs(&[]).await.unwrap().is_empty());
}

pub(super) async fn a_key_finds_its_job_within_its_tenant(s: Subject) {
    s.submit(keyed(1, "it's '문서' \"42\"%_")).await;
    let found = s.store.by_key(&tenant("default"), &key("it's '문서' \"42\"%_")).await.unwrap();
    assert_eq!(found, Some(s.record(id(1)).await));
    assert_eq!(s.store.by_key(&tenant("default"), &key("other")).await.unwrap(), None);
    assert_eq!(s.store.by_key(&tenant("other"), &key("it's '문서' \"42\"%_")).await.unwrap(), None);
}

pub(super) async fn every_filter_filters(s: Subject) {
    let job_2 = job_with(2, |spec| {
        spec.queue = queue("slow");
        spec.tenant = tenant("t");
        spec.job_type = JobType::parse("OTHER").unwrap();
        spec.tags = [("team".to_owned(), "검색".to_owned()), ("x".to_owned(), "y".to_owned())].into();
        spec.idempotency_key = Some(key("k"));
    });
    s.running(job(1)).await;
    let early = s.now();
    s.advance(1);
    s.submit(job_2).await;
    s.done(id(1), fail(1, FailureClass::InvalidRequest)).await;
    let all = JobFilter::default;
    let text = |value: &str| Some(value.to_owned());
    let only_2 = [
        JobFilter { status: Some(Status::Pending), ..all() },
        JobFilter { phase: Some(Phase::Waiting), ..all() },
        JobFilter { job_type: text("OTHER"), ..all() },
        JobFilter { queue: text("slow"), ..all() },
        JobFilter { tenant: text("t"), ..all() },
        JobFilter { tag: Some(("team".into(), "검색".into())), ..all() },
        JobFilter { idempotency_key: text("k"), ..all() },
        JobFilter { created_after: Some(s.now()), ..all() },
        JobFilter { queue: text("slow"), tag: Some(("x".into(), "y".into())), tenant: text("t"), ..all() },
    ];
    for filter in only_2 {
        assert_eq!(s.list(filter.clone()).await, [id(2)], "{filter:?}");
    }
    let only_1 = [
        JobFilter { status: Some(Status::Failed), ..all() },
        JobFilter { error_code: text("LLM_INVALID_REQUEST"), ..all() },
        JobFilter { created_before: Some(s.now()), created_after: Some(early), ..all() },
    ];
    for filter in only_1 {
        assert_eq!(s.list(filter.clone()).await, [id(1)], "{filter:?}");
    }
    let none = [
        JobFilter { tag: Some(("team".into(), "y".into())), ..all() },
        JobFilter { queue: text("slow"), tenant: text("default"), ..all() },
        JobFilter { created_before: Some(early), ..all() },
        JobFilter { queue: text("sl%"), ..all() },
    ];
    for filter in none {
        assert_eq!(s.list(filter.clone()).await, [], "{filter:?}");
    }
    assert_eq!(s.list(all()).await, [id(2), id(1)]);
}

pub(super) async fn pages_go_from_new_to_old_without_gaps(s: Subject) {
    s.submit_all((1..=25).map(|n| job_with(n, |spec| spec.priority = (n % 3) as i8)).collect()).await;
    let filter = JobFilter { status: Some(Status::Pending), ..JobFilter::default() };
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = ids(&s.store.list(&filter, Page { limit: 10, before }).await.unwrap());
        before = page.last().copied();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 10);
        seen.extend(page);
        // What comes in meanwhile does not disturb.
        s.submit(job(100 + u32::try_from(seen.len()).unwrap())).await;
    }
    assert_eq!(seen, (1..=25).rev().map(id).collect::<Vec<_>>());
}

pub(super) async fn the_jobs_ahead_are_counted(s: Subject) {
    let other_queue = job_with(9, |spec| {
        spec.queue = queue("other");
        spec.priority = 10;
    });
    let later = NewJob { start: Start::After(secs(100)), ..job_with(8, |spec| spec.priority = 10) };
    s.submit_all(vec![job(2), job(1), job_with(3, |spec| spec.priority = 5), other_queue, later]).await;
    s.submit(job_with(4, |spec| spec.priority = -1)).await;
    let ahead = async |n| s.store.ahead_of(&s.record(id(n)).await.job).await.unwrap();
    let all = [ahead(3).await, ahead(1).await, ahead(2).await, ahead(4).await];
    assert_eq!(all, [0, 1, 2, 3]);
    assert_eq!(ahead(8).await, 0);
    s.claim(1).await;
    assert_eq!([ahead(1).await, ahead(4).await, ahead(3).await], [0, 2, 0], "a running job is not in line");
}

pub(super) async fn dead_letters_are_grouped_by_what_failed_alike(s: Subject) {
    let failing = |n: u32, code: &str, message: &str, queue_name: &str| {
        let mut new = job(n);
        Arc::make_mut(&mut new.spec).queue = queue(queue_name);
        let failure = Failure::new(FailureClass::InvalidRequest, code, message);
        (new, Event::Fail { token: token(1), failure, jitter: 0.0, usage: vec![paid(10)] })
    };
    let jobs = [
        failing(1, "A", "page 3 of 12 is empty", "q"),
        failing(2, "A", "page 40 of 77 is empty", "q"),
        failing(3, "A", "it's something else", "q"),
        failing(4, "B", "page 3 of 12 is empty", "r"),
        failing(5, "A", "page 1 of 2 is empty", "r"),
        failing(6, "A", "page 1 of 2 is empty", "q"),
    ];
    let ask = coolant_core::store::ClaimRequest { queues: vec![queue("q"), queue("r")], ..request(1) };
    let start = s.now();
    for (new, event) in jobs {
        let id = new.id;
        s.submit(new).await;
        s.claim_with(ask.clone()).await;
        s.done(id, event).await;
        s.advance(1);
    }
    s.done(id(6), Event::Discard).await;
    let groups = s.store.dlq_groups(&JobFilter::default()).await.unwrap();
    let mut summary: Vec<_> =
        groups.iter().map(|group| (group.count, group.error_code.as_str(), group.message.as_str())).collect();
    assert_eq!(summary.remove(0), (3, "A", "page # of # is empty"));
    summary.sort_unstable();
    assert_eq!(summary, [(1, "A", "it's something else"), (1, "B", "page # of # is empty")]);
    let first = &groups[0];
    assert_eq!((first.first_at, first.last_at), (start, start.plus(secs(4))));
    assert_eq!((first.cost.as_nanos(), first.job_type.as_str()), (30, "TEST"));
    assert!([id(1), id(2), id(5)].contains(&first.sample));
    let of_r = JobFilter { queue: Some("r".into()), ..JobFilter::default() };
    assert_eq!(s.store.dlq_groups(&of_r).await.unwrap().len(), 2);
}
