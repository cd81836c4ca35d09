//! `coolant search`.

use super::CommandResult;
use super::args::SearchArgs;
use super::out::{Output, shortened};
use crate::app::App;
use crate::engine::Caller;
use crate::http::wire::documents::{HitView, Hits};

pub(super) async fn run(app: App, args: SearchArgs, output: &Output) -> CommandResult {
    let caller = Caller::local();
    let mode = args.mode.into();
    let hits = app.engine.search(&caller, &args.query, Some(args.k), args.document.as_deref(), mode).await?;
    if output.is_json() {
        output.json(&Hits { hits: hits.into_iter().map(HitView::from).collect() });
        return Ok(());
    }
    if hits.is_empty() {
        output.remark("nothing found; `coolant index PATH` adds documents");
        return Ok(());
    }
    for (place, hit) in hits.iter().enumerate() {
        let page = hit.page.map(|page| format!(", page {page}")).unwrap_or_default();
        let heading = hit.heading.as_ref().map(|heading| format!("  {heading}")).unwrap_or_default();
        output.line(format!("{:>2}. {}{page}{heading}", place + 1, hit.document_id));
        output.line(format!("    {}", shortened(&hit.text, 240)));
    }
    Ok(())
}
