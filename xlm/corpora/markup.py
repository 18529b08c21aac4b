"""From marked-up text to what a reader sees: HTML, Markdown and reStructuredText as catalogues use them.

Only marks that are certain are taken away. `<text>` is not an HTML tag but something the reader is
shown, and an underscore inside a word is an identifier, not emphasis.
"""

from __future__ import annotations

import html
import re

_INLINE = "a|abbr|b|big|bdi|cite|code|del|em|font|i|ins|kbd|mark|pre|q|s|samp|small|span|strike|strong|sub|sup|tt|u|var"
_BLOCK = (
    "blockquote|body|br|button|center|dd|div|dl|dt|fieldset|footer|form|h[1-6]|head|header|hr|html|iframe|img|input|label|legend|li"
    "|nav|ol|option|p|script|section|select|style|table|tbody|td|textarea|tfoot|th|thead|title|tr|ul|video|wbr"
)
_ATTRIBUTES = r"(?:\s+[^<>]*?)?\s*/?"
_INLINE_TAG = re.compile(rf"</?\s*(?:{_INLINE}){_ATTRIBUTES}>", re.IGNORECASE)
_BLOCK_TAG = re.compile(rf"</?\s*(?:{_BLOCK}){_ATTRIBUTES}>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
# Elements whose content is code for the browser, never shown.
_UNSEEN = re.compile(r"<(script|style)\b[^>]*>.*?</\1>", re.IGNORECASE | re.DOTALL)

_RST_ROLE = re.compile(r":[a-z][\w:+.-]*:`([^`<]*?)\s*(?:<[^`>]*>)?`")
_RST_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]+>`__?")
_FENCE = re.compile(r"```.*?```", re.DOTALL)
_CODE = re.compile(r"(`{1,2})([^`]+)\1")
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
# Translators put spaces into a link's target, which only a hole or an address may then hold.
_LINK = re.compile(r"\[([^\][]+)\](?:\([^)\s]*\)|\(\s*(?:…|https?:|/)[^()]*\))")
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])")
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|[-*•+])[ \t]+", re.MULTILINE)


def visible_text(text: str) -> str:
    """Return ``text`` without tags, entities and the marks of Markdown and reStructuredText."""
    if "`" in text:
        text = _RST_ROLE.sub(r"\1", text)
        text = _RST_LINK.sub(r"\1", text)
        text = _FENCE.sub(" ", text)
    if "<" in text:
        text = _UNSEEN.sub(" ", text)
        text = _BLOCK_TAG.sub(" ", text)
        text = _INLINE_TAG.sub("", text)
    if "](" in text:
        text = _IMAGE.sub(" ", text)
        text = _LINK.sub(r"\1", text)
    if "*" in text or "__" in text:
        text = _STRONG.sub(r"\2", text)
        text = _EMPHASIS.sub(r"\1", text)
    if "`" in text:
        text = _CODE.sub(r"\2", text)
    text = _LINE_MARK.sub("", text)
    # Last, because an escaped `&lt;b&gt;` is shown to the reader as <b>.
    return html.unescape(text) if "&" in text else text
