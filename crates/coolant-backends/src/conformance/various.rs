//! The clock, redrives, the audit trail.

use coolant_core::lifecycle::Event;
use coolant_core::store::{AuditEntry, JobChange, JobFilter, Redrive, RedriveState, Skipped};

use super::Subject;
use super::kit::*;

pub(super) async fn the_clock_is_the_given_one(s: Subject) {
    s.store.ready().await.unwrap();
    assert_eq!(s.store.now().await.unwrap(), s.now());
    s.advance(5);
    assert_eq!((s.store.now().await.unwrap(), s.twin.now().await.unwrap()), (s.now(), s.now()));
}

pub(super) async fn a_redrive_is_saved_only_over_the_version_it_was_read_with(s: Subject) {
    let redrive = Redrive {
        id: id(1),
        filter: JobFilter { tag: Some(("a".into(), "it's".into())), ..JobFilter::default() },
        limit: 10,
        per_second: 0.1,
        force: true,
        reason: "provider is back".into(),
        actor: "ops".into(),
        state: RedriveState::Running,
        matched: 3,
        left: vec![id(7), id(8)],
        redriven: 1,
        skipped: vec![Skipped { job_id: id(6), reason: "cooling".into() }],
        created_at: s.now(),
        version: 0,
    };
    assert!(s.store.save_redrive(redrive.clone()).await.unwrap());
    assert!(!s.twin.save_redrive(redrive.clone()).await.unwrap(), "it is no longer new");
    let read = s.twin.redrive(id(1)).await.unwrap().unwrap();
    assert_eq!(read, Redrive { version: 1, ..redrive.clone() });
    assert_eq!(s.store.running_redrives().await.unwrap(), std::slice::from_ref(&read));
    let next = Redrive { left: Vec::new(), redriven: 3, state: RedriveState::Done, ..read };
    assert!(s.store.save_redrive(next.clone()).await.unwrap());
    assert!(!s.twin.save_redrive(next.clone()).await.unwrap(), "somebody else was faster");
    assert_eq!(s.store.redrive(id(1)).await.unwrap(), Some(Redrive { version: 2, ..next }));
    assert!(s.store.running_redrives().await.unwrap().is_empty());
    assert_eq!(s.store.redrive(id(9)).await.unwrap(), None);
    assert!(!s.store.save_redrive(Redrive { id: id(9), version: 4, ..redrive }).await.unwrap());
}

pub(super) async fn the_audit_comes_newest_first(s: Subject) {
    s.submit_all((1..=5).map(job).collect()).await;
    for n in 1..=5 {
        let audit = AuditEntry {
            at: s.now(),
            actor: "local".into(),
            action: "job.cancel".into(),
            target: id(n).to_string(),
            reason: format!("'{n}'"),
        };
        s.apply_all(vec![JobChange { audit: Some(audit), ..JobChange::new(id(n), Event::Cancel) }]).await;
        s.advance(1);
    }
    let targets: Vec<_> = s.store.audit(3).await.unwrap().into_iter().map(|entry| entry.target).collect();
    assert_eq!(targets, [5, 4, 3].map(|n| id(n).to_string()));
}
