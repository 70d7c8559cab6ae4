package main

import (
	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// highlighter renders code blocks. Each token has a class, and site.css sets the colors.
type highlighter struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (highlighter) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, highlight)
}

func highlight(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.FencedCodeBlock)
	lexer := lexers.Get(string(block.Language(source)))
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, string(block.Lines().Value(source)))
	if err != nil {
		return ast.WalkStop, err
	}
	return ast.WalkContinue, html.New(html.WithClasses(true)).Format(w, styles.Fallback, tokens)
}
