use super::read;

#[track_caller]
fn assert_reads(html: &str, markdown: &str) {
    assert_eq!(read(html).markdown, markdown, "{html}");
}

#[test]
fn headings_and_paragraphs() {
    assert_reads(
        "<h1>One <em>two</em>\n three</h1><p>first<p>second<br>line<h3><a href=x>Sub</a></h3>text",
        "# One two three\n\nfirst\n\nsecond\nline\n\n### Sub\n\ntext",
    );
    assert_reads("<h2><div>Wrapped</div></h2><div>text</div>", "## Wrapped\n\ntext");
}

#[test]
fn lists_are_nested_and_numbered() {
    assert_reads(
        "<ul><li>a<ul><li><p>b</p></li></ul></li><li>c</ul><ol start=3><li>x<li>y</ol>z",
        "- a\n  - b\n- c\n3. x\n4. y\n\nz",
    );
    assert_reads("<ul><li></li></ul><p>text</p>", "text");
}

#[test]
fn a_table_of_data_stays_a_table() {
    assert_reads(
        "<table><thead><tr><th>Code<th>Means</thead><tr><td>E_AUTH<td>stop<br>now</tr>\
         <tr><td>a|b</td><td><p>x</p><p>y</p></td></tr></table>after",
        "| Code | Means |\n| --- | --- |\n| E_AUTH | stop now |\n| a\\|b | x y |\n\nafter",
    );
}

#[test]
fn a_table_that_lays_out_a_page_is_taken_apart() {
    assert_reads(
        "<table><tr><td><ul><li>menu</ul></td><td><h1>Title</h1><p>Text</p>\
         <table><tr><td>a<td>b</table></td></tr></table>",
        "- menu\n\n# Title\n\nText\n\n| a | b |\n| --- | --- |",
    );
}

#[test]
fn code_keeps_its_lines() {
    assert_reads("<pre><code>fn a() {\n    b &lt; c\n}\n</code></pre>", "```\nfn a() {\n    b < c\n}\n```");
    assert_reads("<pre>```</pre>", "````\n```\n````");
}

#[test]
fn what_readers_do_not_see_is_dropped() {
    assert_reads(
        "<head><style>a{}</style><script>if (a < b) '</p>'</script></head><p>seen<noscript><p>no</noscript>\
         <template>no</template><svg><text>no</text></svg><span hidden>no</span>\
         <div style='Display: None'><div>no</div>no</div><textarea>no</textarea><!-- no --> too",
        "seen too",
    );
}

#[test]
fn entities_are_characters() {
    assert_reads("A&nbsp;&amp;&nbsp;B &lt; C &#54620; &euro; &nosuch;", "A & B < C 한 € &nosuch;");
}

#[test]
fn text_that_looks_like_markdown_makes_no_headings() {
    assert_reads("<p># not a heading</p><p>title<br>---</p>", "\\# not a heading\n\ntitle\n\\---");
}

#[test]
fn the_title_is_the_pages_own_or_its_first_heading() {
    assert_eq!(read("<title> The\n title </title><h1>Other</h1>").title.as_deref(), Some("The title"));
    assert_eq!(read("<h2>Low</h2><h1>High</h1>").title.as_deref(), Some("High"));
    assert_eq!(read("<p>text").title, None);
}

#[test]
fn xhtml_may_close_a_script_with_a_slash() {
    assert_reads(
        "<?xml version='1.0'?><html><head><script src='a'/></head><body><p>text</p></body></html>",
        "text",
    );
}

#[test]
fn a_reading_aid_does_not_tear_a_word_apart() {
    assert_reads("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>です", "漢字です");
}

#[test]
fn the_words_of_a_picture_are_text() {
    assert_reads("<p>see<img src=x alt='the chart'>here", "see the chart here");
}
