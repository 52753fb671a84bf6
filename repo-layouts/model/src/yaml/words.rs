//! What is wrong where a text isn't YAML, in the words of whoever writes it.

use granit_parser::ErrorKind;

/// What is wrong, and what to do about it; empty where the first says so.
pub(super) fn of(kind: &ErrorKind) -> (String, &'static str) {
    use ErrorKind::*;
    let (what, hint) = match kind {
        UnexpectedEofFlowSequence => ("a list is not closed", "close it with `]`"),
        UnexpectedEofFlowMapping | UnexpectedEofImplicitFlowMapping => ("a mapping is not closed", "close it with `}`"),
        UnexpectedEofBlockSequence | UnexpectedEofBlockMapping | UnexpectedEof | UnexpectedEndOfPlainScalar => {
            ("the file ends in the middle of a value", "")
        }
        UnclosedFlowCollection { open } => {
            let close = if *open == '[' { ']' } else { '}' };
            return (
                format!("`{open}` is not closed"),
                if close == ']' { "close it with `]`" } else { "close it with `}`" },
            );
        }
        MismatchedFlowCollectionEnd { .. } | MisplacedFlowCollectionEnd => {
            ("this bracket closes nothing", "check which brackets are open here")
        }
        ExpectedFlowMappingSeparator => ("a `,` or the closing `}` is missing before this", ""),
        ExpectedFlowSequenceSeparator => ("a `,` or the closing `]` is missing before this", ""),
        ExpectedBlockSequenceEntry => ("a list item that begins with `- ` was expected here", "check the indentation"),
        ExpectedBlockMappingKey | ExpectedNodeContent | InvalidSimpleKey | MappingKeyNotAllowed => {
            ("a key with `: ` was expected here", "check the indentation, and quote text that holds `: `")
        }
        SimpleKeyExpected | MappingValueNotAllowed | InvalidColonPlacement | FlowMappingValueAdjacentCollection => {
            ("a `: ` stands where none can", "check the indentation, and quote text that holds `: `")
        }
        InvalidMappingValueWhitespace | ExpectedWhitespace | InvalidBlockEntryWhitespace => {
            ("a blank is missing here", "")
        }
        BlockEntryInFlowCollection | BlockSequenceEntryNotAllowed | PlainScalarStartsWithDashFlowIndicator => {
            ("a list item can't begin here", "put it on a line of its own, or quote text that begins with `-`")
        }
        InvalidIndentation | InvalidBlockScalarIndent | InvalidQuotedScalarIndent | InvalidFlowScalarIndent => {
            ("this line is indented in another way than those it belongs to", "check the indentation")
        }
        TabNotAllowed | TabInBlockIndentation | TabAtBlockScalarStart | TabInIndentation | TabInPlainScalar => {
            ("a tab stands where only blanks may", "indent with spaces, not tabs")
        }
        UnclosedQuotedScalar | DocumentIndicatorInQuotedScalar => ("a quote is not closed", "close the quote"),
        InvalidTrailingSingleQuotedScalar | InvalidTrailingDoubleQuotedScalar => {
            ("something follows the closing quote", "put all of the text into the quotes")
        }
        UnknownQuotedScalarEscape | InvalidQuotedScalarHexEscape | InvalidUnicodeEscape => {
            ("this is no escape", "write `\\\\` for a backslash, or use single quotes")
        }
        InvalidLowSurrogateHexEscape | InvalidLowSurrogate | MissingLowSurrogate | UnpairedLowSurrogate => {
            ("this escape is half a character", "write the character itself")
        }
        ZeroBlockScalarIndent | InvalidBlockScalarHeader => {
            ("this can't follow `|` or `>`", "begin the text on the next line")
        }
        UnexpectedCharacter { character } => {
            let what = format!("a value can't begin with `{}`", character.escape_default());
            return (what, "quote text that starts with such a character");
        }
        CommentInterceptedScalar => ("a comment stands in the middle of a text", "put the text into quotes"),
        CommentNotSeparated => ("a blank is missing before `#`", "put a blank before a comment, or quote the text"),
        DirectiveDisallowed => ("YAML directives are not supported", "remove the line that starts with `%`"),
        UnknownAnchor => ("`*` names nothing", "there is no such anchor before it; write the value out"),
        MissingAnchorOrAliasName => {
            ("a name is missing after `&` or `*`", "quote text that starts with such a character")
        }
        RecursionLimitExceeded => ("is nested too deep", "flatten the document"),
        BomInsideDocument => ("a byte order mark stands in the middle", "remove it"),
        InvalidDocumentEnd => ("something follows the end of the document", "remove it"),
        ExpectedTagBang | UndeclaredTagHandle | InvalidTagTerminator | MissingTagUri | UnclosedVerbatimTag => {
            ("this tag is not supported", "remove it; write a string in quotes")
        }
        _ => ("this is not YAML", "check the indentation and quotes above"),
    };
    (what.to_owned(), hint)
}
